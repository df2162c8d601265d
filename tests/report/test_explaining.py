"""What explain says about one observation."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from helpers.policy_tools import cart_pole, ppo
from helpers.shown_runs import HOSTILE
from stable_baselines3 import PPO

import lmpolicy
from lmpolicy import Prompt, TextObservationWrapper
from lmpolicy.report.explaining import Explanation


def test_what_the_policy_says(llama: str) -> None:
    env = cart_pole()
    model = ppo(llama, env)
    row, _ = env.reset(seed=0)
    with th.no_grad():
        shares = model.policy.get_distribution(th.from_numpy(row[None])).distribution.probs[0].tolist()  # type: ignore[union-attr]
        value = float(model.policy.predict_values(th.from_numpy(row[None])))
    for shown in (lmpolicy.explain(model, row), lmpolicy.explain(model.policy, row[None])):
        assert list(shown.probabilities) == ["push left", "push right"]
        assert list(shown.probabilities.values()) == pytest.approx(shares, abs=1e-6)
        assert shown.value == pytest.approx(value, abs=1e-6)
        assert shown.action == ("push left", "push right")[int(np.argmax(shares))]
        assert shown.answer is None
    printed = str(shown)
    assert f"* {shown.action}" in printed
    assert f"{max(shares):.3f}" in printed
    assert "[user] Pole leans" in printed
    assert f"<b>{shown.action}</b>" in shown._repr_html_()


def test_what_the_policy_writes(llama: str) -> None:
    env = TextObservationWrapper(gym.make("CartPole-v1"), action_mode="generate", tokenizer=llama, max_new_tokens=3)
    model = ppo(llama, env, {"score_normalization": "sum"})
    row, _ = env.reset(seed=0)
    shown = lmpolicy.explain(model, row)
    assert shown.answer == env.read_answer(model.predict(row, deterministic=True)[0]).text
    assert (shown.probabilities, shown.action) == ({}, None)
    assert f"answer: {shown.answer!r}" in str(shown)


def test_what_cannot_be_explained(llama: str) -> None:
    env = cart_pole()
    model = ppo(llama, env)
    with pytest.raises(TypeError, match=r"one row of the policy's space, uint8 .*got float32 .*env.encode"):
        lmpolicy.explain(model, np.zeros(4, np.float32))
    with pytest.raises(TypeError, match="explain\\(\\) is for LMActorCriticPolicy, got ActorCriticPolicy"):
        lmpolicy.explain(PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu"), np.zeros(4))


def test_a_notebook_shows_text_as_text() -> None:
    shown = Explanation(Prompt((("user", HOSTILE),), ()), {HOSTILE: 1.0}, HOSTILE, HOSTILE, 0.5)
    page = shown._repr_html_()
    assert "<script" not in page
    assert "<img" not in page
    assert "<style" not in page
    assert page.count("&lt;/script&gt;") == 3 * HOSTILE.count("</script>")

"""A policy that learns from demonstrations: the loss, what it learns, and what it leaves as it was."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from helpers.lm_tools import gradients, largest_difference, make_policy, naive_batch
from helpers.lm_tools import prompt as prompt_of
from helpers.played import expert_games, lake, turn
from helpers.policy_tools import changed, corridor, ppo, weights
from helpers.walks import expert_walks, walks
from helpers.written_answers import naive_answer
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import VecNormalize

import lmpolicy
from lmpolicy import CriticWarmup, LMActorCriticPolicy, WarmStart, warm_start
from lmpolicy.text.prompt import cue_after
from lmpolicy.text.spaces import utf8
from lmpolicy.training.imitation.cloning import Rows, clone_epoch, judge, losses_of, own_rate
from lmpolicy.training.imitation.demonstration import EnvWords
from lmpolicy.training.imitation.encoding import answer_row, encode
from lmpolicy.training.shaping import PotentialShaping

# The loss


def test_the_loss_is_the_mean_of_weighted_log_probabilities(llama: str) -> None:
    policy = make_policy(llama, score_normalization="token")
    policy.set_training_mode(True)
    prompts = [
        prompt_of("row 1"),
        prompt_of("row 22", ("stay",)),
        prompt_of("row 333", ("hit", "stick", "up")),
        prompt_of("row 1"),
    ]
    actions, weights = np.array([1, 0, 2, 0]), np.array([1, 2, 0.5, 0], dtype=np.float32)
    returns = np.array([1.0, np.nan, -2.0, np.nan], dtype=np.float32)
    rows = Rows([utf8(one.to_json()) for one in prompts], actions, weights, returns)
    losses = losses_of(policy, rows)
    assert losses.critic is not None
    chances, values = naive_batch(policy, prompts, "token")
    actor = (
        -sum(float(w) * chances[k].log_softmax(-1)[a] for k, (w, a) in enumerate(zip(weights, actions, strict=True)))
        / 4
    )
    critic = ((values[0] - 1) ** 2 + (values[2] + 2) ** 2) / 2
    legal = [one[one.isfinite()].log_softmax(-1) for one in chances]
    entropy = -sum((one.exp() * one).sum() for one in legal) / 4
    for mine, naive in ((losses.actor, actor), (losses.critic, critic), (losses.entropy, entropy)):
        th.testing.assert_close(mine, naive, rtol=1e-5, atol=1e-6)
    mine = gradients(policy, losses.actor + 0.3 * losses.critic - 2 * losses.entropy)
    assert largest_difference(mine, gradients(policy, actor + 0.3 * critic - 2 * entropy)) < 1e-5
    assert max(float(one.abs().max()) for one in mine.values()) > 0.01


@pytest.mark.parametrize(("ent_coef", "chance"), [(0.0, 0.99), (0.3, 0.969), (0.5, 0.902), (1.0, 0.782)])
def test_an_entropy_bonus_keeps_the_policy_open(llama: str, ent_coef: float, chance: float) -> None:
    """The best answer to one prompt with two phrases solves log(p / (1 - p)) = 1 / (ent_coef · p)."""
    model = ppo(llama, corridor(), policy_kwargs={"reference": {"beta": 1.0, "of": "base"}})
    policy = model.policy
    prompt = prompt_of("row 1", ("left", "right"))
    rows = Rows([utf8(prompt.to_json())], np.array([1]), np.ones(1, np.float32), np.full(1, np.nan, np.float32))
    with own_rate(policy, 0.01):
        for _ in range(150):
            clone_epoch(model, rows, 1, np.random.default_rng(0), ent_coef)
    found = judge(policy, rows, 1)
    reached = float(np.exp(-found.actor))
    if ent_coef == 0:
        assert reached > chance
        return
    assert reached == pytest.approx(chance, abs=0.003)
    entropy = -reached * np.log(reached) - (1 - reached) * np.log(1 - reached)
    assert found.entropy == pytest.approx(entropy, abs=1e-4), "the policy's own, whatever its reference"


def test_a_step_is_that_of_the_learner(llama: str) -> None:
    model = ppo(llama, corridor(), vf_coef=0.7, max_grad_norm=0.01)
    played, policy = expert_walks(), model.policy
    rows = encode(policy, EnvWords.of(model.get_env()), played, played.returns(0.9))[0]
    seen: list[float] = []
    policy.optimizer.register_step_pre_hook(
        lambda *_: seen.append(
            float(th.nn.utils.get_total_norm([p.grad for p in policy.parameters() if p.grad is not None]))
        )
    )
    with own_rate(policy, 1e-3):
        clone_epoch(model, rows, 5, np.random.default_rng(0))
    assert len(seen) == 3, "12 turns in minibatches of 5"
    assert max(seen) <= 0.01 * 1.001, "clipped as in PPO"


def test_of_a_written_answer_only_its_own_tokens_count(llama: str) -> None:
    env = lake(action_mode="generate", tokenizer=llama, max_new_tokens=12)
    model = ppo(llama, env)
    played = expert_games(2, action_mode="generate", tokenizer=llama, max_new_tokens=12)
    rows = encode(model.policy, EnvWords.of(model.get_env()), played, [None] * len(played))[0]
    loss = losses_of(model.policy, rows).actor
    naive = [naive_answer(model.policy, one.prompt, row)[0] for one, row in zip(played, rows.actions, strict=True)]
    th.testing.assert_close(loss, -th.stack(naive).mean(), rtol=1e-5, atol=1e-5)
    tokenizer = model.policy.backbone.tokenizer
    for one, row in zip(played, rows.actions, strict=True):
        ids, _ = env.action_space.split(row)
        assert tokenizer.decode(ids, skip_special_tokens=True) == one.answer
        assert env.unwrapped is not None


def answer_ids(policy: LMActorCriticPolicy, **fields: Any) -> tuple[str, int | None, list[int]]:
    """The text that the policy is to write for a turn, the phrase after it, and the token ids."""
    row = answer_row(policy.actor, replace(turn(action="right"), **fields))  # type: ignore[arg-type]
    ids, number = policy.actor.space.split(row)  # type: ignore[attr-defined]
    return str(policy.backbone.tokenizer.decode(ids)), number, ids


def writing(model: str, max_new_tokens: int = 30, n_phrases: int = 0, **settings: Any) -> LMActorCriticPolicy:
    from helpers.written_answers import writing_policy

    return writing_policy(model, n_phrases, max_new_tokens, **settings)


def test_answers_end_as_the_policy_ends_them(tiny_models: dict[str, Path], llama: str) -> None:
    templated, plain = writing(llama), writing(str(tiny_models["gpt2"]))
    words, _, ids = answer_ids(templated, answer="I go right.")
    assert words.startswith("I go right.")
    assert not templated.actor.queries.ends or ids[-1] in templated.actor.queries.ends  # type: ignore[attr-defined]
    assert answer_ids(plain, answer="I go right.")[0] in ("I go right.\n", " I go right.\n")
    assert answer_ids(plain, answer="I go right.\n")[0] == answer_ids(plain, answer="I go right.")[0]
    assert "right" in answer_ids(plain)[0], "the phrase is the answer, where there is no other"
    with pytest.raises(ValueError, match=r"would end the answer .* at a text of `stop`"):
        answer_ids(plain, answer="First\nthen right.")
    with pytest.raises(ValueError, match="max_new_tokens of the wrapper is 3"):
        answer_ids(writing(llama, max_new_tokens=3), answer="a long answer in many tokens")


@pytest.mark.parametrize("answer", ["I see ice.", "I see ice.\nAction: right", "I see ice. Action: right"])
def test_a_thought_ends_before_its_phrase(llama: str, tiny_models: dict[str, Path], answer: str) -> None:
    words, number, _ = answer_ids(writing(llama, n_phrases=2), answer=answer)
    assert (words, number) == ("I see ice.\nAction:", 1)
    words, number, _ = answer_ids(writing(str(tiny_models["gpt2"]), n_phrases=2), answer=answer)
    assert (words.strip(), number) == ("I see ice.", 1)
    assert words.endswith("\n")
    assert cue_after(words) == "Action:"


def test_a_phrase_without_a_thought(llama: str) -> None:
    for fields in ({}, {"answer": "right"}, {"answer": "Action: right"}):
        words, number, _ = answer_ids(writing(llama, n_phrases=2), **fields)
        assert (words, number) == ("Action:", 1)


# Learning


@pytest.mark.filterwarnings("ignore::lmpolicy.GuardWarning")
def test_the_lake_is_cloned_in_seconds() -> None:
    settings = lmpolicy.hyperparameters("FrozenLake-v1", is_slippery=False)
    settings = replace(settings, normalize_reward=True)
    venv = settings.make_env(0, n_envs=2)
    model = PPO(LMActorCriticPolicy, venv, seed=0, device="cpu", **settings.ppo)
    result = warm_start(model, expert_games(20), epochs=10)
    assert evaluate_policy(model, lake(), 5)[0] == 1.0
    assert result.best["accuracy"] == 1.0
    assert (result.turns, result.held_out) == (108, 12)
    assert isinstance(result, WarmStart)
    # The critic knows the return, in the units of the scaled rewards.
    assert isinstance(venv, VecNormalize)
    row = th.from_numpy(lake().reset()[0][None])
    expected = settings.gamma**5 / float(np.sqrt(venv.ret_rms.var + venv.epsilon))
    assert model.policy.predict_values(row).item() == pytest.approx(expected, abs=0.7)


def test_written_answers_are_learnt() -> None:
    options = {"action_mode": "generate", "max_new_tokens": 6}
    model = PPO(LMActorCriticPolicy, lake(**options), seed=0, device="cpu", n_steps=8, batch_size=8, learning_rate=2e-3)
    result = warm_start(model, expert_games(4, **options), epochs=15, batch_size=6, critic=False)
    assert evaluate_policy(model, lake(training=False, **options), 2)[0] == 1.0
    assert "accuracy" not in result.best
    assert result.best["validation_loss"] < 0.05


def test_the_learner_stays_as_it_was(llama: str) -> None:
    rate = LinearSchedule(1e-3, 1e-4, 1.0)
    model = ppo(llama, make_vec_env(corridor, 2), learning_rate=rate)
    before = weights(model)
    for mode in (True, False):
        model.policy.set_training_mode(mode)
        warm_start(model, expert_walks(), 1, learning_rate=3e-3)
        assert model.policy.training == mode
    assert [group["lr"] for group in model.policy.optimizer.param_groups] == [1e-3, 1e-3]
    assert (model.num_timesteps, model._n_updates) == (0, 0)
    assert model.lr_schedule(1.0) == 1e-3
    names = changed(before, weights(model))
    assert any("lora" in name for name in names)
    assert any("value_head" in name for name in names)
    assert all(one["step"] > 0 for one in model.policy.optimizer.state.values())
    model.learn(16, callback=CriticWarmup(1))
    assert model.num_timesteps == 16


def test_without_the_critic_the_value_head_stays(llama: str) -> None:
    for played, critic in ((expert_walks(), False), (walks(0, 1, 2), True)):
        model = ppo(llama, corridor())
        before = weights(model)
        result = warm_start(model, played, 2, critic=critic)
        assert not any("value_head" in name for name in changed(before, weights(model)))
        assert "value_loss" not in result.best


def test_where_rewards_are_changed_the_critic_learns_nothing(llama: str, caplog: pytest.LogCaptureFixture) -> None:
    plain = lmpolicy.hyperparameters("FrozenLake-v1", is_slippery=False)
    shaped = replace(plain, training_wrapper=partial(PotentialShaping, potential=float), n_envs=1)
    for settings, learns in ((replace(plain, n_envs=1), True), (shaped, False)):
        model = ppo(llama, settings.make_env(0))
        before = weights(model)
        warm_start(model, expert_games(4), 2, batch_size=6)
        assert any("value_head" in name for name in changed(before, weights(model))) == learns
        assert ("PotentialShaping changes the rewards" in caplog.text) != learns


def test_a2c_learns_too(llama: str) -> None:
    policy_kwargs = {"model": llama, "lora": {"r": 4}, "score_normalization": "token"}
    model = A2C(LMActorCriticPolicy, corridor(), policy_kwargs=policy_kwargs, learning_rate=1e-2, device="cpu", seed=0)
    result = warm_start(model, expert_walks(), 10, patience=None)
    assert result.best["validation_loss"] < result.epochs[0]["validation_loss"]
    model.learn(10)


def test_a_frozen_model_learns_values_alone(llama: str) -> None:
    model = ppo(llama, corridor(), {"lora": "frozen"})
    result = warm_start(model, expert_walks(), 20, patience=None, learning_rate=1e-2)
    assert result.best["validation_value_loss"] < 0.5 * result.epochs[0]["validation_value_loss"]
    with pytest.raises(ValueError, match="nothing to learn: the language model is frozen"):
        warm_start(model, walks(0, 1, 2))


def test_the_same_seed_gives_the_same_weights(llama: str) -> None:
    found = []
    for seed in (3, 3, 4):
        model = ppo(llama, corridor())
        warm_start(model, expert_walks(), 2, seed=seed, batch_size=4)
        found.append(weights(model))
    assert not changed(found[0], found[1])
    assert changed(found[0], found[2])


def test_warm_start_survives_a_checkpoint(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, corridor())
    warm_start(model, expert_walks(), 2)
    loaded = PPO.load(lmpolicy.save(model, tmp_path / "model"), env=corridor(), device="cpu")
    assert not changed(weights(model), weights(loaded))
    for one in (model, loaded):
        warm_start(one, expert_walks(), 2)
    assert not changed(weights(model), weights(loaded)), "the optimizer's state is there, too"

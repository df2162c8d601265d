"""The bundled LM: small, near uniform, rebuilt from seeds by one command, and trained on random play alone."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections import Counter
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3 import PPO
from transformers import AutoModelForCausalLM, AutoTokenizer

from lmpolicy import LMActorCriticPolicy, TextObservationWrapper
from lmpolicy.bundled import BUNDLED
from lmpolicy.pretraining import build, corpus


def test_it_is_small() -> None:
    assert (BUNDLED / "model.safetensors").stat().st_size <= 4 * 2**20


@pytest.mark.parametrize("env_id", list(corpus.WEIGHTS))
def test_start_policy_is_near_uniform(env_id: str) -> None:
    env = TextObservationWrapper(gym.make(env_id))
    policy = LMActorCriticPolicy(env.observation_space, env.action_space, lambda _: 0.0)
    rows, rng = [env.reset(seed=0)[0]], np.random.default_rng(0)
    for _ in range(30):
        row, _, terminated, truncated, _ = env.step(int(rng.integers(env.action_space.n)))
        rows.append(env.reset()[0] if terminated or truncated else row)
    probabilities = policy.get_distribution(th.from_numpy(np.stack(rows))).distribution.probs
    assert probabilities.max(dim=1).values.mean() < 1 / env.action_space.n + 0.1


def test_tokenizer_is_rebuilt_byte_by_byte(tmp_path: Path) -> None:
    """Fails when a task or the corpus says something else than when the model was built: rebuild it then."""
    tokenizer = build.build_tokenizer(build.CORPORA["control"], vocabulary=1024, sample=20_000)
    tokenizer.save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (tmp_path / name).read_bytes() == (BUNDLED / name).read_bytes(), name


def test_each_digit_is_a_token() -> None:
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED)
    tokens = [tokenizer.decode(i) for i in tokenizer("Cart is left 1234.56 m, 7 and 89").input_ids]
    assert [t.strip() for t in tokens if any(c.isdigit() for c in t)] == list("123456789")
    assert all(len(re.findall(r"\d", token)) <= 1 for token in tokenizer.get_vocab())


def test_documents_come_from_seeds() -> None:
    first, again, other = (list(itertools.islice(corpus.documents(seed), 50)) for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_corpus_plays_at_random() -> None:
    """Every phrase is as frequent as the others, also right where one of them would be good."""
    counts: Counter[tuple[str, str]] = Counter()
    for text in itertools.islice(corpus.documents(7), 4_000):
        for lean, action in re.findall(r"(?:Pole|Rod|Stick) leans (\w+)[^<]*<\|assistant\|>push (left|right)", text):
            counts[lean, action] += 1
    total = sum(counts.values())
    assert total > 1_000
    for lean in ("left", "right"):
        share = counts[lean, lean] / (counts[lean, "left"] + counts[lean, "right"])
        assert abs(share - 0.5) < 0.06, counts


def test_rewording_says_the_same_in_other_words() -> None:
    rng = np.random.default_rng(0)
    text = "Pole leans right 7.5 degrees, turns left 2.8 per step."
    versions = {corpus.reword(text, rng) for _ in range(200)}
    assert text in versions
    assert len(versions) > 5
    assert all("7.5" in version and "2.8" in version and "right" in version for version in versions)


def test_build_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--steps 2 --tokens 512 --sample 200 --vocabulary 400 --width 32 --layers 1 --heads 2"
    monkeypatch.setattr(sys, "argv", ["build", "--output", str(tmp_path), *options.split()])
    build.main()
    assert "step 2/2" in capsys.readouterr().out
    model, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert model.config.vocab_size == len(tokenizer) == 400
    env = TextObservationWrapper(gym.make("CartPole-v1"))
    LMActorCriticPolicy(env.observation_space, env.action_space, lambda _: 0.0, model=str(tmp_path))


def test_checkpoint_is_lean(tmp_path: Path) -> None:
    """Weighs less than LoRA, value head and Adam moments plus 64 KB."""
    env = TextObservationWrapper(gym.make("CartPole-v1"))
    model = PPO(LMActorCriticPolicy, env, n_steps=16, batch_size=16, n_epochs=1, device="cpu").learn(16)
    model.save(tmp_path / "model")
    weights = sum(p.numel() * p.element_size() for p in model.policy.parameters() if p.requires_grad)
    size = os.path.getsize(tmp_path / "model.zip")
    assert size < 3 * weights + 64 * 1024
    assert size > 3 * weights

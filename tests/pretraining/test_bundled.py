"""The bundled LM: small, near uniform, short prompts, rebuilt from seeds, trained on random play alone."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from helpers.toy_envs import Script
from stable_baselines3 import PPO
from transformers import AutoTokenizer

from lmpolicy import LMActorCriticPolicy, TextObservationWrapper, TextTask
from lmpolicy.bundled import BUNDLED
from lmpolicy.envs import MiniGrid, MountainCar, TextWorld
from lmpolicy.pretraining.bundled_mixture import CONTROL, GRID_WORDINGS, GRIDS, bundled_mixture
from lmpolicy.pretraining.making import BUNDLED_SIZE, TOKENIZER_SEED
from lmpolicy.pretraining.text_games import RECORD, RecordedTextWorld
from lmpolicy.pretraining.tokenizer import train_tokenizer

N_DOCUMENTS = 3_000
DIGEST = "923a03aa23fcf81cca2bb40d264e5ee7edbbf0312205f7b3fc49bb72439b1acd"
"""Of the first of the documents that the bundled tokenizer was built from."""


@contextmanager
def words_that_were_read() -> Iterator[None]:
    """When the bundled LM was built, a car at rest "rolled right"; all else is said today as it was then."""
    plain = MountainCar.format_observation
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MountainCar, "format_observation", lambda task, state: plain(task, (state[0], state[1] or 1e-9)))
        yield


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """The first documents that the bundled tokenizer was built from."""
    pytest.importorskip("minigrid")
    with words_that_were_read():
        return [one.text for one in itertools.islice(bundled_mixture().documents(TOKENIZER_SEED), N_DOCUMENTS)]


def policy_of(env: gym.Env, **policy_kwargs: Any) -> LMActorCriticPolicy:
    return LMActorCriticPolicy(env.observation_space, env.action_space, lambda _: 0.0, **policy_kwargs)


def rows_of(env: Any, count: int) -> th.Tensor:
    """Observations of random play."""
    rows, rng = [env.reset(seed=0)[0]], np.random.default_rng(0)
    for _ in range(count):
        row, _, terminated, truncated, _ = env.step(int(rng.integers(len(env.prompt.actions))))
        rows.append(env.reset()[0] if terminated or truncated else row)
    return th.from_numpy(np.stack(rows))


def test_it_is_small() -> None:
    assert (BUNDLED / "model.safetensors").stat().st_size <= 4e6


def test_corpus_is_that_of_the_model(texts: list[str]) -> None:
    """Fails when a task or the corpus says something else than when the model was built: rebuild it then."""
    found = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    assert found == DIGEST, "run `python -m lmpolicy.pretraining --bundled`, then note the new digest here"


@pytest.mark.slow
def test_tokenizer_is_rebuilt_byte_by_byte(tmp_path: Path) -> None:
    mixture = bundled_mixture()
    documents = itertools.islice(mixture.documents(TOKENIZER_SEED), BUNDLED_SIZE.sample)
    with words_that_were_read():
        tokenizer = train_tokenizer((one.text for one in documents), BUNDLED_SIZE.vocabulary, mixture.separate)
    tokenizer.save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (tmp_path / name).read_bytes() == (BUNDLED / name).read_bytes(), name


def test_the_facts_say_what_it_has_read() -> None:
    facts = json.loads((BUNDLED / "pretraining.json").read_text())
    assert set(CONTROL) | set(GRIDS) | {"lmpolicy/TextWorld-v0"} <= set(facts["env_steps"])


def test_tokens_of_an_observation_of_cart_pole() -> None:
    tokenizer, env = AutoTokenizer.from_pretrained(BUNDLED), TextObservationWrapper(gym.make("CartPole-v1"))
    env.reset(seed=0)
    lengths, rng = [], np.random.default_rng(0)
    for _ in range(200):
        if env.step(int(rng.integers(2)))[2]:
            env.reset()
        lengths.append(len(tokenizer(env.prompt.messages[-1][1] + "<|assistant|>").input_ids))
    assert max(lengths) <= 20


@pytest.mark.parametrize("env_id", list(CONTROL))
def test_start_policy_is_near_uniform(env_id: str) -> None:
    env = TextObservationWrapper(gym.make(env_id))
    probabilities = policy_of(env).get_distribution(rows_of(env, 30)).distribution.probs
    assert probabilities.max(dim=1).values.mean() < 1 / env.action_space.n + 0.11  # type: ignore[attr-defined]


@pytest.mark.parametrize("env_id", ["BabyAI-GoToLocal-v0", "BabyAI-BossLevel-v0", "MiniGrid-DoorKey-5x5-v0"])
def test_start_policy_is_near_uniform_in_grids(env_id: str) -> None:
    pytest.importorskip("minigrid")
    env = TextObservationWrapper(gym.make(env_id), MiniGrid(), max_prompt_bytes=8192)
    probabilities = policy_of(env).get_distribution(rows_of(env, 30)).distribution.probs
    assert probabilities.max(dim=1).values.mean() < 1 / env.action_space.n + 0.11  # type: ignore[attr-defined]


UNREAD = (
    ("heat the house", "do nothing", "cool the house"),
    ("bid one more coin", "fold"),
    ("engage warp drive", "vent plasma", "hail the frigate", "brace for impact", "scramble drones"),
    ("a", "b", "c", "d"),
    ("knit", "purl", "cast off the whole remaining row of stitches"),
    ("nudge backwards", "nudge forwards"),
    ("accelerate", "decelerate", "keep the speed"),
    ("attack", "defend", "retreat"),
    ("buy", "sell", "hold"),
    ("pour the milk", "stir", "add sugar"),
    ("open valve 3", "close valve 3"),
    ("speak", "stay silent"),
    ("plant wheat", "plant barley", "plough", "rest"),
    ("increase dose", "decrease dose"),
    ("A1", "A2", "B1", "B2"),
    ("yes", "no"),
    ("sail to Genoa", "sail to Tunis", "stay in port"),
    ("rock", "paper", "scissors"),
    ("IDLE", "LANE_LEFT", "LANE_RIGHT", "FASTER", "SLOWER"),
    ("NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN"),
)
"""Phrases that it has never read."""


def least_entropy(phrases: tuple[str, ...], **policy_kwargs: Any) -> float:
    """Entropy of the start policy, as a share of the largest."""

    class Words(TextTask):
        system_prompt = "Do well."
        action_texts = phrases

        def format_observation(self, observation: Any) -> str:
            return f"Now it is {observation}."

    env = TextObservationWrapper(
        Script(["morning", "late in the evening", "12"], spaces.Discrete(len(phrases))), Words()
    )
    entropy = policy_of(env, **policy_kwargs).get_distribution(rows_of(env, 2)).entropy()
    assert entropy is not None
    return float(entropy.detach().min()) / math.log(len(phrases))


@pytest.mark.parametrize(
    ("arguments", "least"), [({}, 19), ({"score_normalization": "sum"}, 15)], ids=["default", "sum"]
)
def test_of_most_phrases_that_it_has_never_read_all_are_tried(arguments: dict[str, Any], least: int) -> None:
    enough = [phrases for phrases in UNREAD if least_entropy(phrases, **arguments) >= 0.5]
    assert len(enough) >= least, enough


def test_corpus_plays_at_random_in_grids(texts: list[str]) -> None:
    """Every action is as frequent as the others, also towards what the mission asks for."""
    first = {word: words[0] for words in GRID_WORDINGS for word in words}
    counts: Counter[str] = Counter()
    towards: Counter[bool] = Counter()
    for text in texts:
        if "Mission" not in text and "You face" not in text:
            continue
        for turn, phrase in re.findall(r"<\|user\|>([^<]*)<\|assistant\|>([a-z ]+)<", text):
            action = first.get(phrase, phrase)
            counts[action] += 1
            seen = re.search(r"(?:go to|pick up) \w+ (\w+ \w+)\..* \1 [^.,]*(left|right)[.,]", turn)
            if seen and action in ("turn left", "turn right"):
                towards[action.endswith(seen[2])] += 1
    shares = [
        counts[phrase] / counts.total() for phrase in ("turn left", "turn right", "go forward", "pick up", "drop")
    ]
    assert counts.total() > 1_000
    assert max(shares) - min(shares) < 0.05, counts
    assert towards.total() > 15
    assert abs(towards[True] / towards.total() - 0.5) < 0.3, towards


def test_corpus_tells_of_each_world(texts: list[str]) -> None:
    adventures = [text for text in texts if "Room: " in text]
    assert 0.05 < len(adventures) / len(texts) < 0.2
    for part in ("Compare ", "The episode is over.", "Pole leans", "Mission: ", "action 1", "Points: ", "You drive a "):
        assert any(part in text for text in texts), part
    assert all(text.endswith("<|end|>") for text in texts)
    turns = [text.count("<|user|>") for text in texts]
    assert min(turns) == 1
    assert max(turns) > 5
    # Past turns leave out what the last one tells.
    assert all(text.count("Goal: ") <= 2 for text in adventures)


def test_recorded_games_are_played_again() -> None:
    env = RecordedTextWorld()
    wrapped = TextObservationWrapper(env, TextWorld(list_commands=False), max_prompt_bytes=8192)
    seen, wins = set(), 0
    for seed in range(200):
        wrapped.reset(seed=seed)
        over = False
        while not over:
            assert len(wrapped.prompt.actions) == 1 or over
            seen.add(wrapped.prompt.actions[0])
            _, reward, terminated, truncated, _ = wrapped.step(0)
            wins += terminated and reward > 0
            over = terminated or truncated
    assert {"look", "inventory"} < seen
    assert len(seen) > 100
    assert wins > 3, "random play wins now and then"
    episodes = json.loads(gzip.decompress(RECORD.read_bytes()))
    commands = Counter(turn[4].split()[0] for episode in episodes for turn in episode["turns"] if len(turn) > 4)
    assert commands.most_common(1)[0][1] / commands.total() < 0.35


def test_checkpoint_is_lean(tmp_path: Path) -> None:
    """Weighs less than LoRA, value head and Adam moments plus 64 KB."""
    env = TextObservationWrapper(gym.make("CartPole-v1"))
    model = PPO(LMActorCriticPolicy, env, n_steps=16, batch_size=16, n_epochs=1, device="cpu").learn(16)
    model.save(tmp_path / "model")
    weights = sum(p.numel() * p.element_size() for p in model.policy.parameters() if p.requires_grad)
    size = os.path.getsize(tmp_path / "model.zip")
    assert size < 3 * weights + 64 * 1024
    assert size > 3 * weights

"""The bundled LM of text worlds: small, near uniform, rebuilt from seeds, and trained on random play alone."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium as gym
import minigrid  # noqa: F401  # registers its envs
import numpy as np
import pytest
import torch as th
from stable_baselines3 import PPO
from transformers import AutoTokenizer

from lmpolicy import LMActorCriticPolicy, TextObservationWrapper, models
from lmpolicy.bundled import BUNDLED, WORLDS
from lmpolicy.envs import MiniGrid, TextWorld
from lmpolicy.pretraining import build, corpus_worlds
from lmpolicy.pretraining.text_games import RECORD, RecordedTextWorld
from lmpolicy.text.tokenizer import load_tokenizer

FOLDER = BUNDLED / "worlds"
N_DOCUMENTS = 3_000
DIGEST = "b128bc8ff8bc7127b51046ef3deac8c57edf0f4a0c10000f3a2f5148f2f72de8"
"""Of the first of the 20,000 documents that the bundled tokenizer was built from."""


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """The first documents that the bundled tokenizer was built from."""
    return list(itertools.islice(corpus_worlds.documents(build.TOKENIZER_SEED), N_DOCUMENTS))


def test_it_is_small_and_found_by_its_name() -> None:
    assert (FOLDER / "model.safetensors").stat().st_size <= 4 * 2**20
    assert Path(models.resolve(WORLDS)) == FOLDER == build.CORPORA["worlds"].folder
    assert build.CORPORA["control"].folder == BUNDLED
    assert load_tokenizer(WORLDS).get_vocab() == AutoTokenizer.from_pretrained(FOLDER).get_vocab()
    assert load_tokenizer(WORLDS).get_vocab() != load_tokenizer(None).get_vocab()


def test_corpus_is_that_of_the_model(texts: list[str]) -> None:
    """Fails when a task or the corpus says something else than when the model was built: rebuild it then."""
    found = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    assert found == DIGEST, "run `python -m lmpolicy.pretraining.build worlds`, then note the new digest here"


def without_vocabulary(folder: Path) -> dict[str, Any]:
    """A tokenizer's file but for what depends on how much of the corpus it was trained on."""
    parts = json.loads((folder / "tokenizer.json").read_text())
    assert len(parts["model"].pop("vocab")) > len(parts["model"].pop("merges")) > 0
    return parts


def test_tokenizer_of_a_few_documents_is_like_the_bundled_one(tmp_path: Path) -> None:
    build.build_tokenizer(build.CORPORA["worlds"], vocabulary=2048, sample=200).save_pretrained(tmp_path)
    assert without_vocabulary(tmp_path) == without_vocabulary(FOLDER)
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes(), name


@pytest.mark.slow
def test_tokenizer_is_rebuilt_byte_by_byte(tmp_path: Path) -> None:
    tokenizer = build.build_tokenizer(build.CORPORA["worlds"], vocabulary=2048, sample=20_000)
    tokenizer.save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes(), name


def test_what_a_mission_names_is_the_token_of_what_is_seen() -> None:
    tokenizer = load_tokenizer(WORLDS)
    text = "Mission: go to the red ball. You see a grey key 1 step left, a red ball 2 steps forward."
    tokens = [tokenizer.decode(token) for token in tokenizer(text).input_ids]
    assert [token.strip() for token in tokens].count("red") == 2
    assert [token.strip() for token in tokens].count("ball") == 2


@pytest.mark.parametrize("env_id", ["BabyAI-GoToLocal-v0", "BabyAI-BossLevel-v0", "MiniGrid-DoorKey-5x5-v0", ""])
def test_start_policy_is_near_uniform(env_id: str) -> None:
    task = MiniGrid() if env_id else TextWorld(list_commands=False)
    env = TextObservationWrapper(gym.make(env_id) if env_id else RecordedTextWorld(), task, max_prompt_bytes=8192)
    policy = LMActorCriticPolicy(env.observation_space, env.action_space, lambda _: 0.0, model=WORLDS)
    rows, rng = [env.reset(seed=0)[0]], np.random.default_rng(0)
    for _ in range(30):
        row, _, terminated, truncated, _ = env.step(int(rng.integers(len(env.prompt.actions))))
        rows.append(env.reset()[0] if terminated or truncated else row)
    distribution = policy.get_distribution(th.from_numpy(np.stack(rows))).distribution
    if env_id:  # six phrases; of a recorded game there is but one
        assert distribution.probs.max(dim=1).values.mean() < 1 / env.action_space.n + 0.1


def test_documents_come_from_seeds() -> None:
    first, again, other = (list(itertools.islice(corpus_worlds.documents(seed), 40)) for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_corpus_plays_at_random(texts: list[str]) -> None:
    """Every action is as frequent as the others, also towards what the mission asks for."""
    first = {word: words[0] for words in corpus_worlds.WORDINGS for word in words}
    counts: Counter[str] = Counter()
    towards: Counter[bool] = Counter()
    for text in texts:
        if "You play a text adventure" in text or "Room: " in text:
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
    assert counts.total() > 2_000
    assert max(shares) - min(shares) < 0.04, counts
    assert towards.total() > 30
    assert abs(towards[True] / towards.total() - 0.5) < 0.25, towards


def test_corpus_tells_of_each_world(texts: list[str]) -> None:
    adventures = [text for text in texts if "Room: " in text]
    assert 0.1 < len(adventures) / len(texts) < 0.3
    assert any("Compare " in text for text in texts)
    assert any("The episode is over." in text for text in texts)
    assert all(text.endswith("<|end|>") for text in texts)
    turns = [text.count("<|user|>") for text in texts]
    assert min(turns) == 1
    assert max(turns) > 4
    # Past turns leave out what the last one tells.
    assert all(text.count("Goal: ") <= 2 for text in adventures)


def test_scattered_agents_stand_between_the_walls() -> None:
    rng, facing = np.random.default_rng(0), 0
    for env_id in ("MiniGrid-MultiRoom-N4-S5-v1", "BabyAI-GoToLocal-v0", "MiniGrid-LavaCrossingS9N2-v0"):
        env: Any = gym.make(env_id).unwrapped
        for seed in range(20):
            env.reset(seed=seed)
            corpus_worlds.scatter(env, rng)
            assert env.grid.get(*env.agent_pos) is None
            ahead = env.grid.get(*env.front_pos)
            facing += ahead is not None and ahead.type in ("ball", "box", "key", "door")
            for _ in range(20):
                env.step(int(rng.integers(6)))  # out in the void, minigrid itself would stop here
    assert facing > 10


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


def test_it_learns_and_is_loaded_again(tmp_path: Path) -> None:
    env = TextObservationWrapper(gym.make("BabyAI-GoToRedBallNoDists-v0"))
    settings = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "policy_kwargs": {"model": WORLDS}, "device": "cpu"}
    model = PPO(LMActorCriticPolicy, env, seed=0, **settings).learn(32)
    row = th.as_tensor(env.reset(seed=0)[0])[None]
    model.save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model", device="cpu")
    assert loaded.policy_kwargs["model"] == WORLDS, "by its name, so that the checkpoint can move"
    assert th.equal(*(one.policy.get_distribution(row).distribution.probs for one in (model, loaded)))

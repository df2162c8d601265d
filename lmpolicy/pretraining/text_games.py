"""Recorded random play in games of TextWorld, so that the corpus can be made without the package textworld.

``python -m lmpolicy.pretraining.text_games`` makes the games and records new play. It needs
``pip install "lmpolicy[textworld]"``.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from lmpolicy.envs.textworld import PARTS, TextWorldEnv

RECORD = Path(__file__).parent / "text_games.json.gz"

GAMES: tuple[tuple[str, int, dict[str, Any]], ...] = (
    *(("coin_collector", 4, {"level": level}) for level in (3, 5, 8, 12, 105, 110, 205)),
    *(("treasure_hunter", 4, {"level": level}) for level in (2, 5, 9, 12, 15, 22)),
    *(("simple", 3, {"rewards": "dense", "goal": goal}) for goal in ("detailed", "brief", "none")),
    *(("cooking", 3, {"recipe": number, "take": number, "open": True, "go": 6}) for number in (1, 2)),
    *(("custom", 4, {"world_size": size, "nb_objects": 10, "quest_length": 3}) for size in (3, 5)),
)
"""Challenge, number of games, and settings of the challenge."""

STEPS, LONGEST = 60, 30
"""Largest numbers of commands per game, and per episode."""


def record(folder: Path | None = None) -> list[dict[str, Any]]:
    """Make the games and play each at random.

    :param folder: folder where games are kept. Default: that of :class:`TextWorldEnv`.
    :return: one dict per episode with ``texts`` and ``turns``. A turn has the places of the observation's four texts in
        ``texts``, the command that followed, and the reward of that command. The last turn has no command.
    """
    rng = np.random.default_rng(0)
    episodes = []
    for challenge, games, settings in GAMES:
        env = TextWorldEnv(challenge=challenge, challenge_settings=settings, games=games, split="read", folder=folder)
        for game in range(games):
            left = STEPS
            while left > 0:
                episodes.append(_play(env, game, min(left, LONGEST), rng))
                left -= len(episodes[-1]["turns"])
        env.close()
    return episodes


def _play(env: TextWorldEnv, game: int, steps: int, rng: np.random.Generator) -> dict[str, Any]:
    observation, info = env.reset(options={"game": game})
    texts: list[str] = []
    turns: list[list[Any]] = []
    over = False
    for step in range(steps + 1):
        for part in PARTS:
            if observation[part] not in texts:
                texts.append(observation[part])
        turns.append([texts.index(observation[part]) for part in PARTS])
        if over or step == steps:
            break
        command = str(rng.choice(sorted(info["admissible_commands"])))
        observation, reward, over, _, info = env.step(command)
        turns[-1] += [command, reward]
    return {"texts": texts, "turns": turns, "over": over}


class RecordedTextWorld(gym.Env):
    """Play recorded episodes again, each from a random turn on. Only the recorded command is legal."""

    def __init__(self) -> None:
        self.episodes = json.loads(gzip.decompress(RECORD.read_bytes()))
        self.observation_space = spaces.Dict({part: spaces.Text(10_000) for part in PARTS})
        self.action_space = spaces.Text(200)
        self._episode: dict[str, Any] = {}
        self._turn = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Draw an episode and the turn to begin with."""
        super().reset(seed=seed)
        self._episode = self.episodes[int(self.np_random.integers(len(self.episodes)))]
        self._turn = int(self.np_random.integers(len(self._episode["turns"]) - 1))
        return self._observe()

    def step(self, action: str) -> tuple[dict[str, str], float, bool, bool, dict[str, Any]]:
        """Go on to the next turn. At the end of a record that is not the end of its game, the episode is truncated."""
        turns = self._episode["turns"]
        reward = turns[self._turn][-1]
        self._turn += 1
        last = self._turn == len(turns) - 1
        terminated = last and self._episode["over"]
        observation, info = self._observe()
        return observation, reward, terminated, last and not terminated, info

    def _observe(self) -> tuple[dict[str, str], dict[str, Any]]:
        turn, texts = self._episode["turns"][self._turn], self._episode["texts"]
        observation = {part: texts[place] for part, place in zip(PARTS, turn, strict=False)}
        return observation, {"admissible_commands": tuple(turn[len(PARTS) : len(PARTS) + 1])}


def main() -> None:
    """Record new play."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RECORD, help="file to write")
    parser.add_argument("--folder", type=Path, help="where the games are kept")
    arguments = parser.parse_args()
    text = json.dumps(record(arguments.folder), separators=(",", ":"))
    arguments.output.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()

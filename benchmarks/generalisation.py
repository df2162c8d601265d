"""What a language model that learnt one world does in others: success in and out of distribution.

    python -m benchmarks.generalisation                            # grids and text adventures; half an hour per seed
    python -m benchmarks.generalisation --worlds grid --seeds 0    # a part

grid: trained on BabyAI-GoToObj-v0, but on no mission that names purple or a box; tested on such missions, with words
that neither training nor the LM has read, with synonyms of actions, another phrasing, and a larger room.
text: trained on games of TextWorld's coin collector; tested on games of the same size that it has not seen, on larger
ones, on ones with side rooms, and on another challenge. Needs ``pip install "lmpolicy[textworld]"``.

Success is the share of --episodes episodes that reach the goal, most likely action. Checkpoints land in --models and
are not trained again; writes benchmarks/results/generalisation.csv and prints the table.
"""

import argparse
import csv
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import gymnasium as gym
import torch
from stable_baselines3 import PPO

import lmpolicy
from benchmarks.common.machine import processor
from benchmarks.common.paths import RESULTS
from benchmarks.learning.tasks import missing
from lmpolicy import Hyperparameters, LMActorCriticPolicy, save
from lmpolicy.comparison.evaluating import evaluate
from lmpolicy.envs import TEXT_WORLD, MiniGrid, TextWorld
from lmpolicy.training.random_play import RandomPlay

HELD_OUT = ("purple", "box")
COPIES, TEST_SEED = 50, 5_000_000
FIELDS = ("world", "condition", "method", "seed", "success", "mean_length", "episodes", "threads", "processor", "torch")


class Missions(gym.Wrapper[Any, Any, Any, Any]):
    """Draws levels until the mission is one of those that are wanted.

    :param env: an env of minigrid.
    :param wanted: says whether a mission is.
    """

    def __init__(self, env: gym.Env, wanted: Callable[[str], bool]) -> None:
        super().__init__(env)
        self.wanted = wanted

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        while not self.wanted(observation["mission"]):
            observation, info = self.env.reset(options=options)
        return observation, info


class Reworded(MiniGrid):
    """A grid in other words.

    :param words: pattern and what stands in its place, in observations and rules.
    :param phrases: other phrases of actions.
    """

    def __init__(self, words: Mapping[str, str] | None = None, phrases: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.words, self.others = dict(words or {}), dict(phrases or {})

    def bind(self, env: gym.Env) -> None:
        """Put the rules into the other words, too."""
        super().bind(env)
        self.system_prompt = self._reword(self.system_prompt)
        self.phrases = {self.others.get(phrase, phrase): action for phrase, action in self.phrases.items()}
        self.action_texts = self.phrases

    def format_observation(self, observation: Any) -> str:
        """The same in the other words."""
        return self._reword(super().format_observation(observation))

    def _reword(self, text: str) -> str:
        for pattern, word in self.words.items():
            text = re.sub(pattern, word, text)
        return text


@dataclass(frozen=True)
class Condition:
    """What is tested on; the first of each world is what was trained on."""

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the settings."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``gymnasium.make``, beside those of the settings."""


def asks_for(*words: str) -> Callable[[gym.Env], gym.Env]:
    """Only missions that name one of these words."""
    return lambda env: Missions(env, lambda mission: any(word in mission for word in words))


def as_trained(env: gym.Env) -> gym.Env:
    """Only missions that name nothing that is held out."""
    return Missions(env, lambda mission: not any(word in mission for word in HELD_OUT))


INVENTED = {"purple": "maroon", r"\bball\b": "sphere", r"\bkey\b": "wrench"}
PHRASING = {
    r"Mission: (.*?)\. You face (\w+) and carry (.*?)\.": r"You look \2 and hold \3. Your task: \1.",
    "You see": "In view:",
    r"steps? forward": "ahead",
    r"steps? (left|right)": r"to the \1",
}
SYNONYMS = {
    "turn left": "rotate left",
    "turn right": "rotate right",
    "go forward": "walk on",
    "pick up": "grab",
    "drop": "put down",
    "toggle": "use",
}
GRID = (
    Condition("as trained", {"training_wrapper": as_trained}),
    Condition("missions that name purple", {"training_wrapper": asks_for("purple")}),
    Condition("missions that name a box", {"training_wrapper": asks_for("box")}),
    Condition("words never read: maroon, sphere, wrench", {"training_wrapper": as_trained, "task": Reworded(INVENTED)}),
    Condition("synonyms of actions", {"training_wrapper": as_trained, "task": Reworded(phrases=SYNONYMS)}),
    Condition("another phrasing", {"training_wrapper": as_trained, "task": Reworded(PHRASING)}),
    Condition("a room of 12 x 12 instead of 8 x 8", {"training_wrapper": as_trained}, {"room_size": 12}),
)
COINS = {"challenge": "coin_collector", "level": 5, "games": 100}
UNSEEN = {"split": "test", "games": 20}
USEFUL = TextWorld(list_commands=False, tell_way_back=True, useful_only=True)
TEXT = (
    Condition("games that it was trained on", env_kwargs=COINS),
    Condition("unseen games", env_kwargs={**COINS, **UNSEEN}),
    Condition("unseen games, twice as far", env_kwargs={**COINS, **UNSEEN, "level": 10}),
    Condition("unseen games, three times as far", env_kwargs={**COINS, **UNSEEN, "level": 15}),
    Condition("unseen games with side rooms", env_kwargs={**COINS, **UNSEEN, "level": 105}),
    Condition("the same, useful commands only", {"task": USEFUL}, {**COINS, **UNSEEN, "level": 105}),
    Condition("another challenge: treasure hunter", env_kwargs={"challenge": "treasure_hunter", "level": 5, **UNSEEN}),
)
WORLDS = {"grid": ("BabyAI-GoToObj-v0", GRID), "text": (TEXT_WORLD, TEXT)}


def train(world: str, seed: int, folder: Path, steps: int | None) -> PPO:
    """The model that learnt a world's first condition, from the folder if it is there."""
    path = folder / f"{world}_{seed}.zip"
    if path.exists():
        return PPO.load(path, device="cpu")
    settings = settings_of(world, WORLDS[world][1][0])
    model = PPO(LMActorCriticPolicy, settings.make_env(seed), seed=seed, device="cpu", **settings.ppo)
    model.learn(steps or settings.total_timesteps, callback=settings.callbacks())
    save(model, path)
    return model


def settings_of(world: str, condition: Condition) -> Hyperparameters:
    """The named settings of a world, for what is trained on, with what a condition changes."""
    env_id, (trained_on, *_) = WORLDS[world]
    settings = lmpolicy.hyperparameters(env_id, **trained_on.env_kwargs)
    return replace(settings, env_kwargs={**settings.env_kwargs, **condition.env_kwargs}, **condition.changes)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="env steps of training; default: those of the named settings")
    parser.add_argument("--episodes", type=int, default=200, help="per condition")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--models", type=Path, default=Path("runs/generalisation"), help="folder of checkpoints")
    parser.add_argument("--output", type=Path, default=RESULTS / "generalisation.csv")
    args = parser.parse_args(argv)
    for world in args.worlds:
        if reason := missing(WORLDS[world][0]):
            parser.error(f"{reason}, or name other --worlds")
    torch.set_num_threads(args.threads)
    rows: list[dict[str, Any]] = []
    for world in args.worlds:
        for seed in args.seeds:
            model = train(world, seed, args.models, args.steps)
            for condition in WORLDS[world][1]:
                # Rewards as they are, but with the draw of missions, which for an evaluation is no help.
                settings = replace(settings_of(world, condition), normalize_reward=False)
                env = settings.make_env(TEST_SEED + 1000 * seed, min(COPIES, args.episodes))
                for method, player in (("lm", model), ("random", RandomPlay(env, seed))):
                    numbers = evaluate(player, env, args.episodes, sampled=method == "random", success=True)
                    row = {"world": world, "condition": condition.name, "method": method, "seed": seed}
                    row |= {"success": numbers["mean_return"], "mean_length": numbers["mean_length"]}
                    row |= {"episodes": args.episodes, "threads": args.threads}
                    rows.append({**row, "processor": processor(), "torch": torch.__version__})
                    print(f"{world} seed {seed}, {condition.name}: {method} {float(row['success']):.2f}", flush=True)
                env.close()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with args.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows)
    print(f"\n{table(rows)}\n\n{args.output}")


def table(rows: list[dict[str, Any]]) -> str:
    """Mean over seeds of every condition, with each seed of the language model."""
    lines = ["| world | condition | language model | seeds | random |", "|---|---|---|---|---|"]
    for world, condition in dict.fromkeys((row["world"], row["condition"]) for row in rows):
        found = [row for row in rows if (row["world"], row["condition"]) == (world, condition)]
        values = {
            method: [float(row["success"]) for row in found if row["method"] == method] for method in ("lm", "random")
        }
        seeds = ", ".join(f"{value:.2f}" for value in values["lm"])
        lines.append(f"| {world} | {condition} | {fmean(values['lm']):.2f} | {seeds} | {fmean(values['random']):.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

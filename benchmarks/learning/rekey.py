"""Give the rows of results the digests of today, where the digest of before shows that their settings are the same.

    python -m benchmarks.learning.rekey              # tells what would change
    python -m benchmarks.learning.rekey --write

Nothing is run again. The digests of before knew a training wrapper by its name alone; the rewards of TextWorld's coin
collector were an argument of the env and are a training wrapper now, so that the column ``help`` says 1. A run whose
rows have neither digest is reported and left as it is.

The digests of before of lm-five-envs had the address of a function in memory in them and cannot be computed again:
``--trust lm-five-envs`` re-keys them all the same.
"""

import argparse
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.common.paths import LEARNING
from benchmarks.learning.digests import describe_words, short_hash
from benchmarks.learning.results import ORDER, Rows, read_runs, task_file, write_runs
from benchmarks.learning.runs import Run
from benchmarks.learning.tasks import BY_NAME, TASKS, UNTRAINED
from lmpolicy import Hyperparameters
from lmpolicy.envs import TEXT_WORLD
from lmpolicy.training.shaping import AcrobotEnergy, DiscoveryReward, MountainCarEnergy, PotentialShaper

NAMES = {AcrobotEnergy: "_shaped_acrobot", MountainCarEnergy: "_shaped_mountain_car"}
"""What wrappers with these potentials were called."""
OPTIONS = {"--steps": int, "--episodes": int, "--threads": int, "--model": str, "--device": str}


def run_of(rows: Rows, folder: Path) -> Run:
    """The run that has made some rows, with the settings of today.

    :param rows: of one run.
    :param folder: of the results.
    """
    row = rows[0]
    words = shlex.split(row["options"])
    options: dict[str, Any] = {
        name.removeprefix("--"): OPTIONS[name](value) for name, value in zip(words[::2], words[1::2], strict=True)
    }
    return Run(BY_NAME[row["task"]], row["method"], int(row["seed"]), folder, **options)


def digest_before(run: Run) -> str:
    """The digest that the settings of a run had, by the rule and the names of then.

    :param run: with the settings of today.
    """
    settings, env_kwargs = run.settings, _env_kwargs_before(run.settings)
    kind: tuple[Any, ...] = (run.task.env_id, env_kwargs, run.evaluation_episodes)
    if run.task.success:
        kind += ("success", sorted(run.task.test_kwargs.items()))
    if run.method not in UNTRAINED:
        kind += (run.task.every, settings.total_timesteps, _name_before(settings))
    if run.is_lm:
        own = {**asdict(settings), "env_kwargs": env_kwargs, "help": "", "task": describe_words(settings.task)}
        del own["training_wrapper"]
        for name, plain in (
            ("score_normalization", "sum"),
            ("model", None),
            ("wrapper_kwargs", {}),
            ("reference", None),
            ("optimizer", "Adam"),
        ):
            if own[name] == plain:
                del own[name]
        kind += (run.model, sorted(own.items()))
    elif run.method not in UNTRAINED:
        kind += (run.classic,)
    return short_hash(kind)


def _env_kwargs_before(settings: Hyperparameters) -> Mapping[str, Any]:
    """The arguments of the env as they were called; their order counted."""
    if settings.env_id != TEXT_WORLD:
        return dict(settings.env_kwargs)
    names = {"challenge_settings": "settings"}
    found = {names.get(key, key): value for key, value in settings.env_kwargs.items() if key != "game"}
    if settings.training_wrapper is DiscoveryReward:
        found["reward"] = "discovery"
    return found


def _name_before(settings: Hyperparameters) -> str:
    wrapper = settings.training_wrapper
    return NAMES[type(wrapper.potential)] if isinstance(wrapper, PotentialShaper) else ""


def rekey(folder: Path, trusted: list[str], write: bool) -> list[str]:
    """Re-key all runs of a folder.

    :param folder: of the results.
    :param trusted: methods whose digests of before are not asked for.
    :param write: change the files.
    :return: the runs whose digests are neither those of today nor those of before.
    """
    unknown: list[str] = []
    for task in TASKS:
        path = task_file(folder, task.name)
        runs, count = read_runs(path), 0
        for rows in runs.values():
            run, found = run_of(rows, folder), {row["settings"] for row in rows}
            if found == {run.digest}:
                continue
            if found != {digest_before(run)} and run.method not in trusted:
                unknown.append(f"{run}: {', '.join(sorted(found))}")
                continue
            for row in rows:
                row |= {"settings": run.digest, "help": str(int(run.helped))}
            count += 1
        if count:
            print(f"{path.name}: {count} of {len(runs)} runs {'' if write else 'would be '}re-keyed")
        if count and write:
            write_runs(path, runs)
    return unknown


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--trust", nargs="+", choices=ORDER, default=[], metavar="METHOD")
    parser.add_argument("--write", action="store_true", help="change the files; default: only tell")
    parser.add_argument("--output", type=Path, default=LEARNING, help="folder of the results")
    args = parser.parse_args(argv)
    unknown = rekey(args.output, args.trust, args.write)
    if unknown:
        raise SystemExit("left as they are, since they were made with other settings:\n  " + "\n  ".join(unknown))


if __name__ == "__main__":
    main()

"""What a language model that learnt one world does in others: success in and out of distribution.

    python -m benchmarks.generalisation                                # the bundled LM and random play: hours
    make real && python -m benchmarks.generalisation --model smollm2   # SmolLM2-135M-Instruct; many hours per seed
    python -m benchmarks.generalisation --model bundled smollm2 --worlds grid --seeds 100
    python -m benchmarks.generalisation --model smollm2 --worlds grid --cloned 100 --set word_dropout=0.15
    python -m benchmarks.generalisation --table                        # the table of what is there; runs nothing

grid: trained on BabyAI-GoToObj-v0, but on no mission that names purple or a box; tested on such missions, with words
that neither training nor the bundled LM has read, with synonyms of actions, another phrasing, and a larger room.
wordings: the same tests, after a training in three wordings side by side; none is the one that is tested.
text: trained on games of TextWorld's coin collector; tested on games of the same size that it has not seen, on larger
ones, on ones with side rooms, and on another challenge. Needs ``pip install "lmpolicy[textworld]"``.

With --cloned, the policy learns what BabyAI's bot does in so many episodes of the grid, in place of PPO: minutes.

Success is the share of --episodes episodes that reach the goal, with the most likely actions and with sampled ones;
all play the same episodes. A row of generalisation.csv is a world, a condition, a model and a seed; seeds below 100 are
for trials, and rows of before have no sampled actions. A row is added as soon as it is there, and rows that are there
are skipped, so the same command goes on after an interruption; to repeat one, delete it. A training keeps a checkpoint
of each rollout in --checkpoints, from which it goes on; at its end, what was learnt stays there for further tests.
Different commands may run at the same time, with different worlds, models or seeds.
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch

from benchmarks.common.numbers import positive
from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import add_rows, is_complete, read_rows
from benchmarks.common.settings import setting, sorted_changes
from benchmarks.generalisation.cells import FIELDS, MODELS, RANDOM, Cell, Training
from benchmarks.generalisation.report import table
from benchmarks.generalisation.worlds import WORLDS
from benchmarks.learning.tasks import missing
from lmpolicy import models


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", choices=MODELS, default=[RANDOM, "bundled"])
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[100, 101, 102])
    parser.add_argument("--steps", type=int, help="env steps of training; default: those of the named settings")
    parser.add_argument("--episodes", type=int, default=200, help="per condition")
    parser.add_argument(
        "--set", nargs="+", type=setting, default=[], metavar="NAME=VALUE", help="settings, e.g. last_layers=4"
    )
    parser.add_argument(
        "--cloned", type=positive, default=0, metavar="EPISODES", help="clone the bot's episodes in place of PPO; grid"
    )
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--device", default="cpu", help="of the language model: auto, cpu, cuda")
    parser.add_argument("--checkpoints", type=Path, default=Path("runs/generalisation"), help="folder of trainings")
    parser.add_argument("--table", action="store_true", help="print the table of the file, and run nothing")
    parser.add_argument("--output", type=Path, default=RESULTS / "generalisation.csv", help="file")
    args = parser.parse_args(argv)
    if args.cloned and args.worlds != ["grid"]:
        parser.error("the bot plays one world alone: --cloned needs --worlds grid")
    if args.table:
        return args
    for world in args.worlds:
        if reason := missing(WORLDS[world][0]):
            parser.error(f"{reason}, or name other --worlds")
    for name in args.model:
        try:
            models.resolve(MODELS[name])
        except models.ModelError as error:
            parser.error(str(error))
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    torch.set_num_threads(args.threads)
    if not args.table:
        for seed in args.seeds:
            for world in args.worlds:
                for model in args.model:
                    learns = model != RANDOM
                    changes, cloned = (sorted_changes(args.set), args.cloned) if learns else ((), 0)
                    run(Training(world, model, seed, args.steps, args.device, changes, cloned), args)
    rows = read_rows(args.output)
    if not rows:
        raise SystemExit(f"there is no row in {args.output}")
    print(f"\n{table(rows)}\n\n{args.output}")


def run(training: Training, args: argparse.Namespace) -> None:
    """Train if a test is missing, and run the tests that are.

    :param training: what is tested.
    :param args: of the command line.
    """
    rows = read_rows(args.output)
    cells = [Cell(training, condition, args.episodes) for condition in WORLDS[training.world][1]]
    left = [cell for cell in cells if not is_complete(rows, cell.key, cell.digest)]
    model = training.learn(args.checkpoints) if left and training.model != RANDOM else None
    for cell in left:
        row = cell.test(model)
        add_rows(args.output, FIELDS, [row])
        likely, sampled = (float(row[name]) for name in ("success", "sampled_success"))
        told = f"{likely:.2f}, sampled {sampled:.2f}, {row['test_seconds']} s"
        print(f"{', '.join(cell.key.values())}: {told}", flush=True)


if __name__ == "__main__":
    main()

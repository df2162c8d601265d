"""How phrases are scored: by the sum of the log-probabilities of their tokens, or by its mean over tokens or words.

    python -m benchmarks.normalisation                              # both worlds, both models; many hours
    python -m benchmarks.normalisation --tasks tomato-salad --models bundled --seeds 100
    python -m benchmarks.normalisation --table

The comparison of TWOSOME (Tan et al. 2024, arXiv:2401.14151) on the kitchen and the two tasks of the house, whose
phrases are of different length, with the bundled LM and with SmolLM2-135M-Instruct (``make real``). All else is as in
``python -m benchmarks.real_models``, whose engine, arguments and evaluations it has: cells that are complete are never
run again, and those that were interrupted go on. The cells of the named settings, which score by token, are cells of
real_models: they are kept in its folder, and are run there once for both.
"""

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from benchmarks.common.paths import RESULTS
from benchmarks.learning.tasks import BY_NAME
from benchmarks.real_models.__main__ import add_arguments, check, perform, report, shows
from benchmarks.real_models.methods import BUNDLED, MODEL, settings_for
from benchmarks.real_models.parts import Part, planned
from lmpolicy.comparison.methods import LM

NAME = "normalisation"
TASKS = ("tomato-salad", "household-food", "household-entertainment")
MODELS = {"bundled": BUNDLED, "smollm2": MODEL}
NORMALIZATIONS = {"sum": ("#1f5fa8", "#8fb4de"), "token": ("#d9730d", "#f0b981"), "word": ("#3b8a4a", "#9bcfa5")}
"""With the colours of SmolLM2 and of the bundled LM."""


def parts(args: argparse.Namespace) -> Iterator[Part]:
    """All that was asked for.

    :param args: of the command line.
    """
    for task in args.tasks:
        for model in args.models:
            for normalization in args.normalizations:
                what = planned(BY_NAME[task], args, settings_for(MODELS[model]), MODELS[model])
                if normalization == what.settings.score_normalization:
                    folder = args.real_models / task / MODELS[model]
                else:
                    what = replace(what, settings=replace(what.settings, score_normalization=normalization))
                    folder = args.output / task / f"{model}-{normalization}"
                yield Part(task, what, {LM: f"{model}, {normalization}"}, folder)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=[*TASKS])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
    parser.add_argument("--normalizations", nargs="+", choices=NORMALIZATIONS, default=[*NORMALIZATIONS])
    add_arguments(parser, RESULTS / NAME)
    parser.add_argument(
        "--real-models", type=Path, default=RESULTS / "real_models", help="folder with the cells of the named settings"
    )
    args = parser.parse_args(argv)
    check(parser, [] if shows(args) else args.tasks, "smollm2" in args.models and not shows(args))
    return args


def main(argv: Sequence[str] | None = None) -> None:
    args = parse(sys.argv[1:] if argv is None else argv)
    kinds = [(model, one) for model in MODELS for one in NORMALIZATIONS]
    meanings = {f"{model}, {one}": f"{MODELS[model]}, scores by {one}" for model, one in kinds}
    colours = {f"{model}, {one}": NORMALIZATIONS[one][model == "bundled"] for model, one in kinds}
    found = [*parts(args)]
    report(found, args, NAME, meanings, colours, perform(found, args))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: no process is left behind
    main()

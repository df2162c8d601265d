"""How much time an update takes if only the last layers learn, and the states behind the others are remembered.

    python -m benchmarks.trunk

A model with random weights in the shape of SmolLM2-135M (30 layers), float32. An update is ``evaluate_actions`` on a
minibatch of prompts with four phrases and the backward pass. The ways:

* all: adapters in all layers.
* last K: adapters in the last K layers; every prompt runs through all layers.
* last K, remembered: the same, from the remembered states of the layers below, as from the second epoch on.

Printed are how many times as long adapters in all layers take, as the median over the repetitions, each of which runs
all ways one after the other, and the largest difference of scores and gradients between the last two ways.
"""

import argparse
import csv
import os
import tempfile
import time
from pathlib import Path
from statistics import median

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import numpy as np
import torch as th

from benchmarks.common.paths import RESULTS
from benchmarks.scoring.models import SMOLLM, WORDS, make_policy, save_model
from lmpolicy import Prompt, TextSpace
from lmpolicy.comparison.machine import processor
from lmpolicy.lm.forward import PackedForward
from lmpolicy.lm.trunk import TrunkForward
from lmpolicy.text.spaces import row_keys

FIELDS = ("way", "repetition", "seconds", "all_layers_to_this", "threads", "processor", "torch")
PHRASES = ("go left", "go right", "go up", "stay here")


def make_rows(count):
    """Rows of prompts of about 130 words, of which the last 30 are each prompt's own."""
    system = " ".join(WORDS[:100])
    prompts = [
        Prompt((("system", system), ("user", " ".join(WORDS[100 + 30 * n : 130 + 30 * n]))), PHRASES)
        for n in range(count)
    ]
    return np.stack([TextSpace(8192).encode(prompt.to_json()) for prompt in prompts])


def update(policy, rows, seen):
    """Scores, values and gradients of a minibatch; seconds that it takes."""
    begin = time.perf_counter()
    scores, values = policy.actor.scores(row_keys(rows))
    (scores.log_softmax(-1)[:, 0].sum() + values.square().sum()).backward()
    seconds = time.perf_counter() - begin
    seen["scores"] = scores.detach()
    weights = [weight for weight in policy.backbone.lm.parameters() if weight.grad is not None]
    seen["gradients"] = th.cat([weight.grad.flatten() for weight in weights])
    for weight in policy.parameters():
        weight.grad = None
    return seconds


def ways(folder, args):
    """Each way by its name, and what shows that it is exact."""
    found, results = {}, {}
    policies = {"all": make_policy(folder, len(PHRASES), "float32")}
    for count in args.layers:
        lora = {"r": 16, "lora_alpha": 32, "last_layers": count}
        remembered = make_policy(folder, len(PHRASES), "float32", lora=lora)
        whole = make_policy(folder, len(PHRASES), "float32", lora=lora)
        whole.actor.scorer.forward  # noqa: B018 (the self-check, before another pass is put in its place)
        whole.actor.scorer._forward = PackedForward(whole.backbone.lm, by_layer=False)
        assert isinstance(remembered.actor.scorer.forward, TrunkForward)
        policies |= {f"last {count}": whole, f"last {count}, remembered": remembered}
    rows = make_rows(args.prompts)
    for name, policy in policies.items():
        results[name] = {}
        found[name] = lambda policy=policy, name=name: update(policy, rows, results[name])
    return found, results


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[8, 15], help="how many of the last layers learn")
    parser.add_argument("--depth", type=int, help="layers of the model; default: 30")
    parser.add_argument("--prompts", type=int, default=16, help="distinct prompts of the minibatch")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder")
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    th.set_num_threads(args.threads)
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, (args.output / "trunk.csv").open("w", newline="") as file:
        save_model(SMOLLM, Path(folder), PHRASES, layers=args.depth)
        methods, results = ways(Path(folder), args)
        for run in methods.values():
            run()  # the model is checked, and the lower layers run for the first time
        table = csv.writer(file)
        table.writerow(FIELDS)
        ratios = {name: [] for name in methods}
        for repetition in range(args.repetitions):
            seconds = {name: run() for name, run in methods.items()}
            for name, taken in seconds.items():
                ratios[name].append(seconds["all"] / taken)
                row = (f"{taken:.4f}", f"{ratios[name][-1]:.3f}", args.threads, processor(), th.__version__)
                table.writerow((name, repetition, *row))
    for name, found in ratios.items():
        print(f"{name}: adapters in all layers take {median(found):.2f} times as long")
    for count in args.layers:
        one, other = results[f"last {count}"], results[f"last {count}, remembered"]
        scale = float(one["gradients"].abs().max())
        scores = float((one["scores"] - other["scores"]).abs().max())
        gradients = float((one["gradients"] - other["gradients"]).abs().max())
        print(f"last {count}: largest difference of scores {scores:.2g}, of gradients {gradients:.2g} (of {scale:.2g})")


if __name__ == "__main__":
    main()

"""Where the time of a training run goes: PPO with the bundled LM on CartPole and on Blackjack.

    python -m benchmarks.learn_profile
    python -m benchmarks.learn_profile --steps 1024 --envs CartPole-v1

Trains with the named settings of CartPole and measures the wall-clock time of each part, without that of the
parts it calls. "LM backward" has the backward pass of the LM head, the scores and the value head, too: autograd runs
them in one. "outside" is the share of all that is neither forward nor backward of the LM, nor the optimizer. Writes
learn_profile.csv into benchmarks/results.
"""

import argparse
import csv
import os
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import torch
from stable_baselines3 import PPO

import lmpolicy.lm.forward
import lmpolicy.lm.scorer
from benchmarks.common.paths import RESULTS
from lmpolicy import LMActorCriticPolicy
from lmpolicy.comparison.machine import processor
from lmpolicy.lm.forward import PackedForward
from lmpolicy.lm.queries import PhraseQueries

LM = ("LM forward", "LM head", "LM backward", "optimizer")
REST = "Stable-Baselines3 and the rest"
FIELDS = ("env", "part", "seconds", "share", "env_steps", "threads", "torch", "processor")


class Stopwatch(ExitStack):
    """Wall-clock time of parts that call each other; each is charged only what no other part takes."""

    def __init__(self):
        super().__init__()
        self.seconds, self.running, self.since = {}, [REST], time.perf_counter()

    def switch(self):
        """Charge the time since the last switch."""
        now, part = time.perf_counter(), self.running[-1]
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self.since
        self.since = now

    def watch(self, owner, name, part):
        """Charge a method or function to a part, until this stopwatch is closed."""
        inner = getattr(owner, name)

        def outer(*args, **kwargs):
            self.switch()
            self.running.append(part)
            try:
                return inner(*args, **kwargs)
            finally:
                self.switch()
                self.running.pop()

        self.enter_context(patch.object(owner, name, outer))


def watch_everything(stopwatch, model):
    """Charge what a training run does; what is not named here is charged to the rest."""
    backbone = model.policy.backbone
    stopwatch.watch(backbone.lm, "forward", "LM forward")
    stopwatch.watch(backbone.lm.get_output_embeddings(), "forward", "LM head")
    stopwatch.watch(torch.Tensor, "backward", "LM backward")
    stopwatch.watch(model.policy.optimizer, "step", "optimizer")
    stopwatch.watch(PhraseQueries, "prompts", "reading and rendering prompts")
    stopwatch.watch(type(backbone.tokenizer), "_encode_plus", "tokenizing")
    stopwatch.watch(lmpolicy.lm.forward, "shared_length", "packing")
    stopwatch.watch(lmpolicy.lm.forward, "pack", "packing")
    stopwatch.watch(PackedForward, "_masks", "masks")
    stopwatch.watch(lmpolicy.lm.scorer, "phrase_log_probs", "scores from logits")
    stopwatch.watch(backbone, "values", "value head")
    stopwatch.watch(model.env, "step_wait", "env and its words")


def profile(env_id, args):
    """Train once; return the seconds of each part."""
    settings = replace(lmpolicy.hyperparameters("CartPole-v1"), env_id=env_id)
    model = PPO(LMActorCriticPolicy, settings.make_env(args.seed), device="cpu", seed=args.seed, **settings.ppo)
    model.learn(1)  # one iteration to warm up
    with Stopwatch() as stopwatch:
        watch_everything(stopwatch, model)
        stopwatch.since = time.perf_counter()
        model.learn(args.steps, reset_num_timesteps=False)
        stopwatch.switch()
    return stopwatch.seconds


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--envs", nargs="+", default=["CartPole-v1", "Blackjack-v1"])
    parser.add_argument("--steps", type=int, default=8_192, help="env steps, after one iteration that is not measured")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder")
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    torch.set_num_threads(args.threads)
    args.output.mkdir(parents=True, exist_ok=True)
    with (args.output / "learn_profile.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for env_id in args.envs:
            seconds = profile(env_id, args)
            total = sum(seconds.values())
            outside = total - sum(seconds[part] for part in LM)
            print(f"{env_id}: {args.steps} env steps in {total:.1f} s")
            rows = sorted(seconds.items(), key=lambda item: -item[1])
            for part, spent in [*rows, ("outside", outside)]:
                print(f"  {part:32s} {spent:8.2f} s {spent / total:7.1%}")
                machine = {"threads": args.threads, "torch": torch.__version__, "processor": processor()}
                numbers = {"seconds": f"{spent:.3f}", "share": f"{spent / total:.4f}", "env_steps": args.steps}
                writer.writerow({"env": env_id, "part": part, **numbers, **machine})


if __name__ == "__main__":
    main()

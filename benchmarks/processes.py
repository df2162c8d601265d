"""What several processes do to the time of an update, to the weights, and to a run that is killed.

    python -m benchmarks.processes          # about fifteen minutes on two idle cores
    python -m benchmarks.processes --parts update --processes 2 --prompts 16 --repetitions 1

All processes run on this machine with one thread each, started by torchrun. Three parts:

- ``update``: ``evaluate_actions``, the backward pass, clipping and the optimizer's step, on a minibatch of distinct
  prompts of about 130 words with four phrases, of which the last 30 words are each prompt's own. The model has random
  weights in the shape of SmolLM2-135M (30 layers), float32, with adapters of rank 16 in all layers. Each repetition
  runs one update in rank 0 alone and one in all processes, one after the other. ``transfer`` is the time that the
  weights of the adapters and their gradients take, measured without anything else.
- ``weights``: PPO on CartPole and Blackjack with the bundled LM and scaled rewards, 20 updates with any number of
  processes: the largest difference of a weight to those of one process.
- ``kill``: while such a training writes checkpoints, one process is killed (SIGKILL). Seconds until all others have
  ended, whether the newest checkpoint is readable, and whether the run, resumed with two processes, comes to its end.

Writes benchmarks/results/processes.csv, a line per measurement as soon as it is made. Lines that are there are not
measured again.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch as th
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

import lmpolicy
from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import add_rows, read_rows
from benchmarks.scoring.models import SMOLLM, make_policy, save_model
from benchmarks.trunk import PHRASES, make_rows
from lmpolicy.comparison.machine import processor
from lmpolicy.files import numbered
from lmpolicy.training.checkpoints.checkpoints import CHECKPOINTS, newest_checkpoint

MEASURED = (
    "seconds_alone",
    "seconds",
    "speedup",
    "transfer_seconds",
    "transfer_mib",
    "difference",
    "readable",
    "resumed",
)
KEYS = ("part", "processes", "prompts", "repetition")
FIELDS = (*KEYS, *MEASURED, "seed", "processor", "torch")
PATIENCE = 900
"""Seconds within which a program has ended."""
SAID = "measured: "
"""What a line with a measurement begins with."""
SEED = 100


def say(**measured):
    """Tell the program that started these processes what was measured."""
    print(SAID + json.dumps(measured), flush=True)


def update(policy, rows, actions):
    """One update of PPO's kind; seconds that it takes."""
    begin = time.perf_counter()
    values, log_prob, entropy = policy.evaluate_actions(rows, actions)
    policy.optimizer.zero_grad()
    (values.square().mean() - log_prob.mean() - 0.01 * entropy.mean()).backward()
    th.nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
    policy.optimizer.step()
    return time.perf_counter() - begin


def transfer(spread):
    """Seconds to send the weights and to add up the gradients, and their MiB, both ways together."""
    # The weights are marked as changed, so that they are sent, and an empty forward pass has gradients of zeros.
    spread.changed()
    spread._as_trained()
    begin = time.perf_counter()
    spread._send_weights()
    sent = time.perf_counter() - begin
    n_bytes = 4 * sum(weight.numel() for weight in spread._weights)
    begin = time.perf_counter()
    with spread.processes.lock:
        spread.processes.post("gradient", spread.number, dict.fromkeys(spread.processes.others, 0), answered=False)
        spread.processes.add_up(th.zeros(n_bytes // 4))
    return sent + time.perf_counter() - begin, 2 * n_bytes / 2**20


def measure_updates(args):
    """The part ``update``, in rank 0."""
    lmpolicy.distributed()
    policy = make_policy(args.folder, len(PHRASES), "float32")
    policy.set_training_mode(True)
    rows = th.from_numpy(make_rows(args.prompts))
    actions = th.arange(len(rows)) % len(PHRASES)
    scorer = policy.actor.scorer
    spread = scorer.spread

    def alone():
        scorer.spread = None
        seconds = update(policy, rows, actions)
        scorer.spread = spread
        return seconds

    alone()  # the self-check of the model
    update(policy, rows, actions)  # the others load it
    for repetition in range(args.repetitions):
        seconds = alone()
        shared = update(policy, rows, actions)
        moved, mib = transfer(spread)
        say(
            repetition=repetition,
            seconds_alone=round(seconds, 4),
            seconds=round(shared, 4),
            speedup=round(seconds / shared, 3),
            transfer_seconds=round(moved, 4),
            transfer_mib=round(mib, 1),
        )


class Report(BaseCallback):
    """Reports each step."""

    def _on_step(self):
        say(step=self.num_timesteps)
        return True


def train(args):
    """The parts ``weights`` and ``kill``, in rank 0: train, or go on with a run."""
    lmpolicy.distributed()
    env = lmpolicy.make_multi_env({"CartPole-v1": 4, "Blackjack-v1": 2}, seed=SEED)
    callbacks = [lmpolicy.Checkpoints(args.folder), Report()]
    if numbered(args.folder / CHECKPOINTS):
        model = lmpolicy.resume(args.folder, env, callbacks, device="cpu")
    else:
        options = {"n_steps": 8, "batch_size": 24, "n_epochs": 2, "ent_coef": 0.01, "device": "cpu"}
        model = PPO(lmpolicy.LMActorCriticPolicy, env, seed=SEED, **options)
    model.learn(5 * 48 - model.num_timesteps, callbacks, reset_num_timesteps=False)
    th.save({name: weight.detach() for name, weight in model.policy.named_parameters()}, args.folder / "weights")


class Launched:
    """Processes of this program, started by torchrun, which report measurements."""

    def __init__(self, part, size, folder, *options):
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
        arguments = ["-m", "benchmarks.processes", "--inside", part, "--folder", str(folder), *map(str, options)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.program = subprocess.Popen(
            [sys.executable, *launcher, *arguments], env=environment, stdout=subprocess.PIPE, text=True
        )

    def said(self):
        """Measurements as they come."""
        for line in self.program.stdout:
            if line.startswith(SAID):
                yield json.loads(line.removeprefix(SAID))

    def ranks(self):
        """Process ids by rank, as long as the processes run."""
        found = {}
        children = Path(f"/proc/{self.program.pid}/task/{self.program.pid}/children").read_text().split()
        for child in children:
            variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            names = dict(one.split(b"=", 1) for one in variables if b"=" in one)
            if b"RANK" in names:
                found[int(names[b"RANK"])] = int(child)
        return found

    def end(self):
        """Wait for the end; return whether all processes ended well."""
        return self.program.wait(PATIENCE) == 0


def measure_weights(folder, size):
    """The largest difference of a weight to those of one process, and whether it came to its end."""
    for count in dict.fromkeys((1, size)):
        run = folder / f"weights {count}"
        if not (run / "weights").exists():
            run.mkdir(exist_ok=True)
            launched = Launched("train", count, run)
            list(launched.said())
            assert launched.end()
    one, other = (th.load(folder / f"weights {count}" / "weights") for count in (1, size))
    return {"difference": max(float((one[name] - other[name]).abs().max()) for name in one)}


def measure_kill(folder, size, victim):
    """Kill a process in the middle of the third rollout, and resume."""
    run = folder / f"kill {size} {victim}"
    run.mkdir()
    launched = Launched("train", size, run)
    begin = 0.0
    for measured in launched.said():
        if measured["step"] == 2 * 48 + 24:
            os.kill(launched.ranks()[victim], signal.SIGKILL)
            begin = time.perf_counter()
    assert not launched.end()
    seconds = time.perf_counter() - begin
    place = newest_checkpoint(run)
    readable = PPO.load(place / "model.zip", device="cpu").num_timesteps == 2 * 48
    again = Launched("train", 2, run)
    first = next(again.said())["step"]
    list(again.said())
    resumed = again.end() and first == 2 * 48 + 6 and (run / "weights").exists()
    return {"seconds": round(seconds, 3), "readable": readable, "resumed": resumed}


class Table:
    """The lines of the file of results."""

    def __init__(self, path):
        self.path = path
        self.known = {tuple(row[key] for key in KEYS): row for row in read_rows(path)}

    def missing(self, *key):
        """Whether a line is not there yet."""
        return tuple(map(str, key)) not in self.known

    def add(self, *key, **measured):
        """Write a line."""
        row = dict.fromkeys(FIELDS, "") | dict(zip(KEYS, map(str, key), strict=True)) | measured
        row |= {"seed": SEED, "processor": processor(), "torch": th.__version__}
        add_rows(self.path, FIELDS, [row])
        self.known[tuple(map(str, key))] = {name: str(value) for name, value in row.items()}


def run_updates(table, folder, args):
    save_model(SMOLLM, folder / "model", PHRASES, layers=args.depth)
    for size in args.processes:
        for count in args.prompts:
            if not any(table.missing("update", size, count, n) for n in range(args.repetitions)):
                continue
            options = ("--prompts", count, "--repetitions", args.repetitions)
            launched = Launched("update", size, folder / "model", *options)
            for measured in launched.said():
                repetition = measured.pop("repetition")
                if table.missing("update", size, count, repetition):
                    table.add("update", size, count, repetition, **measured)
            assert launched.end()


def report(table):
    """Print medians."""
    groups = {}
    for (part, size, count, _), row in table.known.items():
        groups.setdefault((part, size, count), []).append(row)
    for (part, size, count), rows in groups.items():
        found = {name: [row[name] for row in rows if row[name]] for name in MEASURED}
        texts = [
            f"{name} {median(map(float, values)):.3g}" if values[0] not in ("True", "False") else f"{name} {values}"
            for name, values in found.items()
            if values
        ]
        print(f"{part}, {size} processes{f', {count} prompts' if count else ''}: {', '.join(texts)} ({len(rows)})")


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--parts", nargs="+", choices=("update", "weights", "kill"), default=["update", "weights", "kill"]
    )
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--prompts", type=int, nargs="+", default=[16, 64], help="distinct prompts of a minibatch")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--depth", type=int, help="layers of the model; default: 30")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder")
    parser.add_argument("--inside", choices=("update", "train"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    if args.inside:
        th.set_num_threads(1)
        args.prompts = args.prompts[0]
        return measure_updates(args) if args.inside == "update" else train(args)
    args.output.mkdir(parents=True, exist_ok=True)
    table = Table(args.output / "processes.csv")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "update" in args.parts:
            run_updates(table, folder, args)
        for size in args.processes:
            if "weights" in args.parts and table.missing("weights", size, "", 0):
                table.add("weights", size, "", 0, **measure_weights(folder, size))
            for victim in (0, 1):
                if "kill" in args.parts and table.missing("kill", size, "", victim):
                    table.add("kill", size, "", victim, **measure_kill(folder, size, victim))
    report(table)
    return None


if __name__ == "__main__":
    main()

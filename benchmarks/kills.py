"""What is lost when a program is killed while it saves and trains: nothing but the last interval between checkpoints.

    python -m benchmarks.kills              # about ten minutes on one core
    python -m benchmarks.kills --kills 20

Kills programs (SIGKILL, which lets no program clean up) at random moments. Three parts:

- ``save``: a program saves a learner over the same path again and again, by lmpolicy.save. After each kill, the file is
  loaded.
- ``save of SB3``: the same by the learner's own ``save``, for comparison.
- ``training``: a program trains on CartPole with the bundled LM, and takes a checkpoint of each rollout of 16 env
  steps. After each kill, the next program resumes. A training that comes to its end is compared with one that was not
  killed: the largest difference of their weights.

Writes benchmarks/results/kills.csv, a line per kill. A benchmark that was stopped goes on where it was: lines that are
there are kept, and the training is resumed from its folder. Needs ``fork``, so it does not run on Windows.
"""

import argparse
import itertools
import os
import random
import select
import shutil
import signal
import sys
import time
import traceback
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

import lmpolicy
from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import add_rows, read_rows
from lmpolicy.files import DRAFT, numbered
from lmpolicy.training.checkpoints.checkpoints import newest_checkpoint

PARTS = {"save": 1.0, "save of SB3": 0.2, "training": 1.0}
"""Share of the kills in each part; what is known of SB3 needs fewer."""
FIELDS = (
    "part",
    "milliseconds",
    "while_saving",
    "env_steps",
    "env_steps_resumed",
    "lost",
    "readable",
    "run",
    "difference",
)
PATIENCE = 300.0
"""Seconds within which a program has begun."""
STEPS, ENVS = 8, 2
INTERVAL = STEPS * ENVS
"""Env steps of a rollout, and from one checkpoint to the next."""
TOTAL = 384
"""Env steps of a training; many are killed dozens of times before they come to their end."""
LONGEST = {"save": 0.4, "save of SB3": 0.4, "training": 2.0}
"""Seconds within which a program is killed, after it has begun to save or has resumed."""
SETTINGS = replace(
    lmpolicy.hyperparameters("CartPole-v1"), n_envs=ENVS, n_steps=STEPS, batch_size=8, n_epochs=1, critic_warmup=8
)


class Program:
    """A forked program that reports numbers through a pipe; it ends by itself or is killed.

    :param work: what it does, given a function that reports a number.
    """

    def __init__(self, work):
        self.reading, writing = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            os.close(self.reading)
            try:
                work(lambda number: os.write(writing, f"{number!r}\n".encode()))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
        os.close(writing)
        self.said = b""

    def numbers(self):
        """What was reported so far."""
        whole = self.said[: self.said.rfind(b"\n") + 1]
        return [float(line) for line in whole.split()]

    def listen(self, until, numbers=None):
        """Listen until a time, or until so many numbers were reported; return whether the program still runs."""
        while numbers is None or len(self.numbers()) < numbers:
            left = until - time.perf_counter()
            if left <= 0 or not select.select([self.reading], [], [], left)[0]:
                return True
            part = os.read(self.reading, 65536)
            if not part:
                return False
            self.said += part
        return True

    def end(self, kill):
        """Kill the program or wait for it; return its exit status, or None if it was killed."""
        if kill:
            os.kill(self.child, signal.SIGKILL)
        _, status = os.waitpid(self.child, 0)
        self.listen(time.perf_counter() + 10)  # what it had reported before
        os.close(self.reading)
        return None if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)


class Report(BaseCallback):
    """Reports the number of env steps after each step."""

    def __init__(self, report):
        super().__init__()
        self.report = report

    def _on_step(self):
        self.report(self.num_timesteps)
        return True


def train(run, seed, report):
    """Begin or resume a training, and go on to its end; report where it began, and each step."""
    torch.set_num_threads(1)
    env = SETTINGS.make_env(seed)
    callbacks = [*SETTINGS.callbacks(), lmpolicy.EntropySchedule(0.02, 0.0), lmpolicy.Checkpoints(run), Report(report)]
    if newest_checkpoint(run) is None:
        model = PPO(lmpolicy.LMActorCriticPolicy, env, seed=seed, device="cpu", **SETTINGS.ppo)
    else:
        model = lmpolicy.resume(run, env, callbacks, device="cpu")
    report(model.num_timesteps)
    model.learn(TOTAL - model.num_timesteps, callbacks, reset_num_timesteps=False)
    lmpolicy.save(model, run / "model")


def compare(run, seed, report):
    """Train without a kill, and report the largest difference of the weights to those of a run."""
    whole = run / "never killed"
    train(whole, seed, lambda _: None)
    first, second = (PPO.load(folder / "model.zip", device="cpu").policy.state_dict() for folder in (run, whole))
    shared = [name for name, value in first.items() if isinstance(value, torch.Tensor) and value.is_floating_point()]
    report(max(float((first[name].double() - second[name].double()).abs().max()) for name in shared))
    shutil.rmtree(whole)


def save_again_and_again(path, save, report):
    """Save a learner over the same path until killed."""
    torch.set_num_threads(1)
    model = PPO(lmpolicy.LMActorCriticPolicy, SETTINGS.make_env(0), device="cpu", **SETTINGS.ppo)
    save(model, path)
    report(0)
    while True:
        save(model, path)


def is_readable(path):
    """Whether a learner can be loaded from a file."""
    try:
        with zipfile.ZipFile(path) as file:
            whole = file.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False
    return whole and Program(lambda report: PPO.load(path, device="cpu")).end(kill=False) == 0


def remove_drafts(folder):
    """Remove what a killed program left half written; return whether there was anything."""
    drafts = [one for one in folder.iterdir() if one.name.startswith(DRAFT)] if folder.exists() else []
    for one in drafts:
        shutil.rmtree(one) if one.is_dir() else one.unlink()
    return bool(drafts)


def begin(work):
    """Start a program, and wait until it reports that it has begun."""
    program = Program(work)
    program.listen(time.perf_counter() + PATIENCE, numbers=1)
    return program


def killed_saves(part, folder, rng):
    """Kill programs that save, one after the other; yield what is noted of each."""
    path = folder / f"{part}.zip"
    folder.mkdir(parents=True, exist_ok=True)
    save = lmpolicy.save if part == "save" else lambda model, path: model.save(path)
    while True:
        program, seconds = begin(partial(save_again_and_again, path, save)), rng.uniform(0, LONGEST[part])
        time.sleep(seconds)
        program.end(kill=True)
        drafts, readable = remove_drafts(folder), is_readable(path)
        # Without temporary files, nobody sees that a file was being written but by what became of it.
        yield {
            "milliseconds": round(1000 * seconds),
            "while_saving": int(drafts or not readable),
            "readable": int(readable),
        }


def killed_trainings(kills, folder, rng):
    """Kill programs that train, and resume each in the next one; yield what is noted of each.

    After the kills, the last training goes on to its end.
    """
    runs = numbered(folder)
    run = runs[max(runs)] if runs else lmpolicy.new_run(folder)
    program = begin(partial(train, run, int(run.name)))
    while True:
        seconds = rng.uniform(0, LONGEST["training"]) if kills else PATIENCE
        running = program.listen(time.perf_counter() + seconds)
        program.end(kill=running)
        reported = program.numbers()
        if not running:
            if not (run / "model.zip").exists():
                raise RuntimeError(f"the training in {run} ended with an error, see above")
            program = begin(partial(compare, run, int(run.name)))
            program.end(kill=False)
            yield {"run": run.name, "difference": program.numbers()[0]}
            if not kills:
                return
            run = lmpolicy.new_run(folder)
            program = begin(partial(train, run, int(run.name)))
            continue
        kills -= 1
        drafts = remove_drafts(run / "checkpoints")
        program = begin(partial(train, run, int(run.name)))
        found = program.numbers()
        yield {
            "milliseconds": round(1000 * seconds),
            "while_saving": int(drafts),
            "env_steps": int(reported[-1]),
            "env_steps_resumed": int(found[0]) if found else "",
            "lost": int(reported[-1] - found[0]) if found else "",
            "readable": int(bool(found)),
            "run": run.name,
        }


def main(argv=None):
    args = parse_arguments(argv)
    path = args.output / "kills.csv"
    for part, share in PARTS.items():
        done = sum(line["part"] == part and line["readable"] != "" for line in read_rows(path))
        left, rng = max(1, round(share * args.kills)) - done, random.Random(f"{part} {args.seed} {done}")
        if left <= 0:
            continue
        if part == "training":
            found = killed_trainings(left, args.runs, rng)
        else:
            found = itertools.islice(killed_saves(part, args.runs, rng), left)
        for line in found:
            add_rows(path, FIELDS, [{"part": part, **line}])
    for part in PARTS:
        print(summary(part, read_rows(path)))


def summary(part, lines):
    """One line about a part."""
    kills = [line for line in lines if line["part"] == part and line["readable"]]
    differences = [float(line["difference"]) for line in lines if line["part"] == part and line["difference"]]
    lost = [int(line["lost"]) for line in kills if line["lost"]]
    saving = sum(int(line["while_saving"]) for line in kills)
    unreadable = sum(line["readable"] == "0" for line in kills)
    text = f"{part}: {len(kills)} kills, {saving} while saving; {unreadable} unreadable"
    if lost:
        text += f"; at most {max(lost)} env steps lost, of {INTERVAL} from one checkpoint to the next"
    if differences:
        text += f"; largest difference of {len(differences)} trainings to those not killed: {max(differences):g}"
    return text


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=150, help="kills in each part; a fifth of it for SB3")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    parser.add_argument("--runs", type=Path, default=Path("runs/kills"), help="folder of the runs that are killed")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the table")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()

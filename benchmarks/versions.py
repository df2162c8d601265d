"""How fast one version of the code is against another: both in alternation, each time in a process of its own.

    python -m benchmarks.versions --old ../old --repetitions 5     # against this checkout

``--old`` is a folder with a checkout of the other version. (Where that is so old that ``envs`` is not found beside
``lmpolicy``, link it: ``ln -s ../envs lmpolicy/envs``.) Measured, each without imports and after a warm-up:

* cartpole: env steps per second of ``learn`` with the named settings of CartPole.
* lake: env steps per second of ``learn`` on the lake that is not slippery, with answers in free text.
* predict: calls of ``model.predict`` per second there, for eight envs, after 2 048 env steps of ``learn``: most answers
  are a phrase of two or three tokens.
* predict-untrained: the same before ``learn``: most answers go on to the limit of eight tokens.

Seconds are those that the process takes of the CPU, on which other processes have little influence. The ratio is the
median of new ÷ old over the repetitions; in each, both versions run one after the other.
"""

import argparse
import csv
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from benchmarks.common.paths import RESULTS
from lmpolicy.comparison.machine import processor

FIELDS = ("what", "repetition", "old_per_second", "new_per_second", "ratio", "threads", "processor")
WHAT = ("cartpole", "lake", "predict", "predict-untrained")
ROOT = Path(__file__).parents[1]
CODE = """
import sys, time
import torch
import lmpolicy
import lmpolicy.envs
from stable_baselines3 import PPO

what, threads, scale, folder = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
for module in (lmpolicy, lmpolicy.envs):
    if not module.__file__.startswith(folder):
        raise SystemExit(f"{module.__name__} is not taken from {folder} but from {module.__file__}")
torch.set_num_threads(threads)
if what == "cartpole":
    settings, written, steps = lmpolicy.hyperparameters("CartPole-v1"), {}, 4096
else:
    settings = lmpolicy.hyperparameters("FrozenLake-v1", is_slippery=False).for_free_text()
    written, steps = {"action_mode": "generate", "max_new_tokens": 8}, 2048
env = settings.make_env(seed=0, **written)
model = PPO(lmpolicy.LMActorCriticPolicy, env, seed=0, device="cpu", **settings.ppo)
rows = env.reset()
if what == "predict-untrained":
    model.predict(rows)
else:
    model.learn(2048 if what == "predict" else 1)
calls = max(1, int(100 * scale))
steps = max(1, int(steps * scale))
begin = time.process_time()
if what.startswith("predict"):
    for _ in range(calls):
        model.predict(rows)
    print(calls / (time.process_time() - begin))
else:
    done = model.num_timesteps
    begin = time.process_time()
    model.learn(steps, reset_num_timesteps=False)
    print((model.num_timesteps - done) / (time.process_time() - begin))
"""


def measure(folder: Path, what: str, args: argparse.Namespace) -> float:
    """Calls or env steps per second of a checkout."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, what, str(args.threads), str(args.scale), str(folder.resolve())],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder.resolve()), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{what} failed in {folder}:\n{done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, required=True, help="folder with the other checkout")
    parser.add_argument("--what", nargs="+", choices=WHAT, default=WHAT)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual work per repetition")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    with (args.output / "versions.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, FIELDS)
        table.writeheader()
        for what in args.what:
            ratios = []
            for repetition in range(args.repetitions):
                folders = [args.old, ROOT] if repetition % 2 == 0 else [ROOT, args.old]
                speeds = {folder: measure(folder, what, args) for folder in folders}
                old, new = speeds[args.old], speeds[ROOT]
                ratios.append(new / old)
                row = {"old_per_second": f"{old:.2f}", "new_per_second": f"{new:.2f}", "ratio": f"{new / old:.3f}"}
                common = {"what": what, "repetition": repetition, "threads": args.threads, "processor": processor()}
                table.writerow(common | row)
                file.flush()
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            print(f"{what}: new ÷ old {median(ratios):.2f} ({spread}, {len(ratios)} repetitions)", flush=True)


if __name__ == "__main__":
    main()

"""How fast PPO learns CartPole from a language model: several seeds, evaluation apart from training.

    python benchmarks/cartpole.py                          # the bundled LM with the settings of make demo, 5 seeds
    python benchmarks/cartpole.py --models FOLDER FOLDER   # others, to compare

Trains as examples/cartpole.py does and evaluates 20 episodes (most likely action) every few thousand env steps.
Appends to benchmarks/results/cartpole.csv and prints a line per evaluation.
"""

import argparse
import csv
import importlib.util
import platform
import time
from pathlib import Path

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from lmpolicy import LMActorCriticPolicy, TextObservationWrapper

ROOT = Path(__file__).parents[1]
FIELDS = ("model", "parameters", "seed", "env_steps", "train_seconds", "mean_return", "threads", "processor")


class Evaluate(BaseCallback):
    """Evaluates every ``every`` env steps; the time that takes is not counted as training."""

    def __init__(self, every, episodes, seed, write):
        super().__init__()
        self.every, self.episodes, self.write = every, episodes, write
        self.env = make_vec_env("CartPole-v1", 10, seed=10_000 + seed, wrapper_class=TextObservationWrapper)

    def _on_training_start(self):
        self.start, self.next = time.perf_counter(), 0

    def _on_step(self):
        return True

    def _on_rollout_start(self):
        if self.num_timesteps >= self.next:
            self.next += self.every
            self.evaluate()

    def evaluate(self):
        begin = time.perf_counter()
        mean, _ = evaluate_policy(self.model, self.env, self.episodes)
        self.write(self.num_timesteps, begin - self.start, mean)
        self.start += time.perf_counter() - begin


def run(example, model_path, seed, args, file):
    """Train once and write a line per evaluation."""
    envs = example.make_training_env(seed)
    kwargs = {**example.POLICY_KWARGS, "model": model_path}
    settings = example.HYPERPARAMETERS
    model = PPO(LMActorCriticPolicy, envs, policy_kwargs=kwargs, seed=seed, device="cpu", **settings)
    base = model.policy.backbone.lm.get_base_model()
    parameters = sum(p.numel() for name, p in base.named_parameters() if "lora" not in name)
    name = Path(model_path).name if model_path else "bundled"

    def write(steps, seconds, mean):
        row = (name, parameters, seed, steps, f"{seconds:.0f}", f"{mean:.1f}", torch.get_num_threads(), processor())
        csv.writer(file).writerow(row)
        file.flush()
        print(f"{name:<12} seed {seed}  {steps:>7} steps  {seconds:5.0f} s  return {mean:6.1f}", flush=True)

    callback = Evaluate(args.every, args.episodes, seed, write)
    model.learn(args.steps, callback=callback)
    callback.evaluate()


def load_example():
    """The module of examples/cartpole.py, whose settings are benchmarked."""
    spec = importlib.util.spec_from_file_location("cartpole_example", ROOT / "examples" / "cartpole.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def processor():
    """The name of the processor, as far as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        return names[0] if names else platform.machine()
    return platform.processor() or platform.machine()


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="*", default=[None], help="folders or hub ids; default: the bundled LM")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, help="env steps; default: those of make demo")
    parser.add_argument("--every", type=int, default=5_000, help="env steps between evaluations")
    parser.add_argument("--episodes", type=int, default=20, help="episodes per evaluation")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "cartpole.csv")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    example = load_example()
    args.steps = args.steps or example.STEPS
    args.output.parent.mkdir(parents=True, exist_ok=True)
    new = not args.output.exists()
    with args.output.open("a", newline="") as file:
        if new:
            csv.writer(file).writerow(FIELDS)
        for model_path in args.models:
            for seed in args.seeds:
                run(example, model_path, seed, args, file)


if __name__ == "__main__":
    main()

"""Four short trainings with everything they log, to hold one version of the code against another.

    python -m benchmarks.reference_runs --output old.json      # in a checkout of one commit
    python -m benchmarks.reference_runs --against old.json     # in a checkout of the other, on the same machine

Every value that reaches the logger is kept, but for those that tell the time, and a digest of all weights and of the
optimizer's state. Two versions with the same arithmetic give the same numbers to the last bit; the largest difference
of each run is printed, and the exit status is 1 if one is above ``--tolerance``.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from stable_baselines3 import PPO
from stable_baselines3.common.logger import KVWriter, Logger

import lmpolicy

RUNS = ("cartpole", "lake-generate", "two-envs", "grid")


class Recorder(KVWriter):
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.dumps: list[dict[str, Any]] = []

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0) -> None:
        kept = {name: value for name, value in key_values.items() if not name.startswith("time/")}
        self.dumps.append({name: plain(value) for name, value in sorted(kept.items())} | {"step": step})

    def close(self) -> None:
        """Nothing is open."""


def plain(value: Any) -> Any:
    """A number or a text that JSON keeps exactly."""
    return value if isinstance(value, str) else float(value)


def make(name: str) -> tuple[PPO, int, list[Any]]:
    """The learner of a run, its env steps and its callbacks."""
    if name == "two-envs":
        env = lmpolicy.make_multi_env({"CartPole-v1": 4, "FrozenLake-v1": 4}, seed=0)
        policy = {"score_normalization": "sum"}
        model = PPO(
            lmpolicy.LMActorCriticPolicy, env, n_steps=64, batch_size=128, n_epochs=4, seed=0, policy_kwargs=policy
        )
        return model, 1024, []
    env_id, options = {
        "cartpole": ("CartPole-v1", {}),
        "lake-generate": ("FrozenLake-v1", {"is_slippery": False}),
        "grid": ("MiniGrid-Empty-5x5-v0", {}),
    }[name]
    settings = lmpolicy.hyperparameters(env_id, **options)
    written: dict[str, Any] = {}
    if name == "lake-generate":
        settings, written = settings.for_free_text(), {"action_mode": "generate", "max_new_tokens": 8}
    env = settings.make_env(seed=0, **written)
    model = PPO(lmpolicy.LMActorCriticPolicy, env, seed=0, **settings.ppo)
    return model, {"cartpole": 4096, "lake-generate": 1024, "grid": 2048}[name], settings.callbacks()


def digest(model: PPO) -> str:
    """Of all weights and of the optimizer's state."""
    found = hashlib.sha256()
    state = {**model.policy.state_dict(), **flatten(model.policy.optimizer.state_dict()["state"], "optimizer")}
    for name, value in sorted(state.items()):
        found.update(name.encode())
        found.update(value.cpu().numpy().tobytes() if isinstance(value, th.Tensor) else repr(value).encode())
    return found.hexdigest()


def flatten(state: Any, name: str) -> dict[str, Any]:
    """The leaves of nested dicts."""
    if not isinstance(state, dict):
        return {name: state}
    return {key: leaf for part, value in state.items() for key, leaf in flatten(value, f"{name}.{part}").items()}


def run(name: str) -> dict[str, Any]:
    """Train, and return all that was logged and what was learnt."""
    model, steps, callbacks = make(name)
    recorder = Recorder()
    model.set_logger(Logger(None, [recorder]))
    model.learn(steps, callback=[lmpolicy.WatchLearning(every=1), *callbacks], log_interval=1)
    rows = model.env.reset()
    actions = model.predict(rows, deterministic=True)[0]
    model.get_env().close()
    return {"log": recorder.dumps, "actions": np.asarray(actions).tolist(), "weights": digest(model)}


def difference(old: Any, new: Any) -> float:
    """The largest difference of two numbers at the same place; infinite where a text, a name or a length differs."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        return max((difference(old[key], new[key]) for key in old), default=0.0)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return max((difference(a, b) for a, b in zip(old, new, strict=True)), default=0.0)
    if isinstance(old, float | int) and isinstance(new, float | int):
        return 0.0 if old == new or (old != old and new != new) else abs(old - new)
    return 0.0 if old == new else float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=RUNS)
    parser.add_argument("--output", type=Path, help="write the runs to this JSON file")
    parser.add_argument("--against", type=Path, help="a file that --output wrote; differences are printed")
    parser.add_argument("--tolerance", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    th.set_num_threads(args.threads)
    old = json.loads(args.against.read_text()) if args.against else {}
    found, failed = {}, []
    for name in args.runs:
        found[name] = run(name)
        print(f"{name}: weights {found[name]['weights'][:16]}", end="", flush=True)
        if name in old:
            gap = difference(old[name]["log"], found[name]["log"])
            same = old[name]["weights"] == found[name]["weights"] and old[name]["actions"] == found[name]["actions"]
            print(f"; largest difference in the log {gap:.3g}; weights {'equal' if same else 'differ'}", end="")
            failed += [name] if gap > args.tolerance else []
        print(flush=True)
        if args.output:
            args.output.write_text(json.dumps(found) + "\n")
    sys.exit(f"above the tolerance: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()

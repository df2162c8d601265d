"""Whether a loop of one's own learns as PPO.learn does, and how fast: Agent on Blackjack against PPO.learn.

    python -m benchmarks.own_loop                     # five seeds and the speed; finished cells are not run again
    python -m benchmarks.own_loop --parts speed       # the speed alone

Settings are the named ones of Blackjack-v1, with fewer env steps. Three ways to train: ``ppo`` is PPO.learn
on 16 envs; ``side by side`` is an Agent with 16 episode ids, one step of each at a time; ``one by one`` is an Agent
that plays one episode after another, with rollouts as long. Each trained model plays 20 000 rounds with most likely
and as many with sampled actions. Writes own_loop.csv, a row per model and way to play.

The speed is taken in alternation: one rollout and update of PPO.learn, then one of the agent, and so on, after one of
each that does not count. Env steps per second of processor time; the ratio is that of the medians. ``side by side`` is
compared with PPO.learn on 16 envs, ``one by one`` with PPO.learn on one env. Writes own_loop_speed.csv, a row per
rollout.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import gymnasium as gym
import torch
from scipy.stats import t as student
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

import lmpolicy
from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import add_rows, read_rows
from lmpolicy import Agent, Hyperparameters, LMActorCriticPolicy
from lmpolicy.comparison.machine import processor

ENV_ID = "Blackjack-v1"
STEPS = 24_576
WAYS = ("ppo", "side by side", "one by one")
COMMON = ("env_steps", "threads", "torch", "processor")
LEARNT = ("way", "seed", "sampled", "mean_return", "rounds", "train_seconds", *COMMON)
SPEED = ("pair", "way", "repetition", "seconds", "cpu_seconds", "steps_per_cpu_second", *COMMON)


def settings_of(args: argparse.Namespace, n_envs: int = 16) -> Hyperparameters:
    """The named settings, whose rollouts have as many steps with any number of envs."""
    settings = replace(lmpolicy.hyperparameters(ENV_ID), total_timesteps=args.steps)
    n_steps = settings.n_steps * settings.n_envs // n_envs
    if args.rollout:
        n_steps = args.rollout // n_envs
    return replace(settings, n_envs=n_envs, n_steps=n_steps, batch_size=min(settings.batch_size, n_steps * n_envs))


def ppo(settings: Hyperparameters, seed: int) -> PPO:
    """A learner on the envs of the settings."""
    return PPO(LMActorCriticPolicy, settings.make_env(seed), seed=seed, device="cpu", **settings.ppo)


def play(agent: Agent, envs: list[gym.Env], seed: int) -> Iterator[None]:
    """Play for ever, one step of each env at a time; a turn of the iterator after each."""
    now = {number: env.reset(seed=seed + number)[0] for number, env in enumerate(envs)}
    while True:
        actions = agent.act_together(now)
        yield
        for number, action in actions.items():
            observation, reward, terminated, truncated, _ = envs[number].step(action)  # type: ignore[call-overload]
            agent.assign_reward(reward, number)
            if terminated or truncated:
                agent.terminate_episode(truncated, number, observation=observation)
                observation, _ = envs[number].reset()  # type: ignore[call-overload]
            now[number] = observation


def make_agent(settings: Hyperparameters, n_envs: int, seed: int) -> tuple[Agent, Iterator[None]]:
    """An agent, and its loop around as many envs."""
    agent = Agent(settings, device="cpu", seed=seed)
    return agent, play(agent, [settings.make() for _ in range(n_envs)], seed)


def train(way: str, seed: int, args: argparse.Namespace) -> tuple[Any, int]:
    """Train in one of the ways; the trained learner, and how many env steps it took."""
    settings = settings_of(args)
    if way == "ppo":
        model = ppo(settings, seed)
        model.learn(args.steps, callback=settings.callbacks())
        return model, model.num_timesteps
    agent, loop = make_agent(settings, 16 if way == "side by side" else 1, seed)
    while agent.is_learning:
        next(loop)
    return agent.learner, agent.num_timesteps


def rollouts(way: str, n_envs: int, args: argparse.Namespace) -> Callable[[], int]:
    """What does one rollout and its update at a call, and says how many env steps that were."""
    settings = settings_of(args, n_envs)
    steps = settings.n_steps * n_envs
    settings = replace(settings, total_timesteps=10**9)  # schedules stay where they begin
    if way == "ppo":
        model = ppo(settings, 0)
        model.learn(steps, callback=settings.callbacks())  # as the agent's first call, with all that is set up once

        def learn() -> int:
            model.learn(steps, callback=settings.callbacks(), reset_num_timesteps=False)
            return steps

        return learn
    agent, loop = make_agent(settings, n_envs, 0)

    def go_on() -> int:
        until = agent.num_timesteps + steps
        while agent.num_timesteps < until:
            next(loop)
        return steps

    go_on()
    return go_on


def measure_returns(path: Path, args: argparse.Namespace) -> None:
    """Train and evaluate each cell that is not in the table."""
    env = lmpolicy.hyperparameters(ENV_ID).make_env(seed=12_345, n_envs=50, training=False)
    for seed in args.seeds:
        for way in WAYS:
            if any((row["way"], row["seed"]) == (way, str(seed)) for row in read_rows(path)):
                continue
            begin = time.process_time()
            model, steps = train(way, seed, args)
            seconds = time.process_time() - begin
            rows = []
            for sampled in (0, 1):
                env.seed(12_345)
                torch.manual_seed(0)
                mean, _ = evaluate_policy(model, env, args.rounds, deterministic=not sampled)
                row = {"way": way, "seed": seed, "sampled": sampled, "mean_return": f"{mean:.4f}"}
                row |= {"rounds": args.rounds, "train_seconds": f"{seconds:.1f}"}
                rows.append({**row, **common(steps, args)})
                print(
                    f"{way}, seed {seed}, {'sampled' if sampled else 'greedy'}: {mean:.4f}, {seconds:.0f} s", flush=True
                )
            add_rows(path, LEARNT, rows)


def measure_speed(path: Path, args: argparse.Namespace) -> None:
    """Time rollouts and updates in alternation."""
    for pair, n_envs in (("side by side", 16), ("one by one", 1)):
        if any(row["pair"] == pair for row in read_rows(path)):
            continue
        ways = {"ppo": rollouts("ppo", n_envs, args), "agent": rollouts(pair, n_envs, args)}
        rows = []
        for repetition in range(args.repetitions):
            for way, go_on in ways.items():
                begin, cpu = time.perf_counter(), time.process_time()
                steps = go_on()
                seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
                row = {"pair": pair, "way": way, "repetition": repetition, "seconds": f"{seconds:.3f}"}
                row |= {"cpu_seconds": f"{cpu:.3f}", "steps_per_cpu_second": f"{steps / cpu:.1f}"}
                rows.append({**row, **common(steps, args)})
        add_rows(path, SPEED, rows)


def common(steps: int, args: argparse.Namespace) -> dict[str, Any]:
    """What every row says."""
    return {"env_steps": steps, "threads": args.threads, "torch": torch.__version__, "processor": processor()}


def report(folder: Path) -> None:
    """Print the means with their intervals, and the ratios."""
    learnt = read_rows(folder / "own_loop.csv")
    for sampled in "01":
        for way in WAYS:
            found = [float(row["mean_return"]) for row in learnt if (row["way"], row["sampled"]) == (way, sampled)]
            if not found:
                continue
            quantile = float(student.ppf(0.975, len(found) - 1))  # nan for one seed
            half = quantile * stdev(found) / len(found) ** 0.5 if len(found) > 1 else quantile
            kind = "sampled" if sampled == "1" else "most likely action"
            print(f"{way:<13}{kind:<20}{fmean(found):8.4f} +- {half:.4f}   ({len(found)} seeds)")
    speed = read_rows(folder / "own_loop_speed.csv")
    for pair in dict.fromkeys(row["pair"] for row in speed):
        rates = {
            way: median(float(row["steps_per_cpu_second"]) for row in speed if (row["pair"], row["way"]) == (pair, way))
            for way in ("ppo", "agent")
        }
        count = sum(row["pair"] == pair and row["way"] == "ppo" for row in speed)
        print(
            f"{pair:<13}agent {rates['agent']:.0f}, PPO.learn {rates['ppo']:.0f} env steps per second of processor "
            f"time: ratio {rates['agent'] / rates['ppo']:.3f} ({count} repetitions)"
        )


def main(argv: list[str] | None = None) -> None:
    """Run what is missing, and report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--parts", nargs="+", choices=("returns", "speed"), default=["returns", "speed"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[100, 101, 102, 103, 104])
    parser.add_argument("--steps", type=int, default=STEPS, help="env steps of a training")
    parser.add_argument("--rounds", type=int, default=20_000, help="rounds of an evaluation")
    parser.add_argument("--rollout", type=int, help="env steps of a rollout; default: those of the settings")
    parser.add_argument("--repetitions", type=int, default=7, help="rollouts of each way that are timed")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    args.output.mkdir(parents=True, exist_ok=True)
    if "speed" in args.parts:
        measure_speed(args.output / "own_loop_speed.csv", args)
    if "returns" in args.parts:
        measure_returns(args.output / "own_loop.csv", args)
    report(args.output)


if __name__ == "__main__":
    main()

"""Return of a policy on Blackjack without the noise of hands: computed from what it does in each of the 280 states.

    python -m benchmarks.blackjack_exact                                             # the named settings, seed 0
    python -m benchmarks.blackjack_exact --seeds 0 1 --set 'ent_coef=[0.06, -0.01]' 'learning_rate=[2e-3, 0]'

20 000 hands have a standard error of 0.007, which is as much as separates a policy that is nearly right from one that
plays some totals wrongly. Cards are drawn with replacement, so the return follows from the probability of hitting in
each state. It is computed about every 10 000 env steps of a training of the language model, with the most likely and
with sampled actions, together with the number of states in which the less good action is the more likely one. A row of
blackjack_exact.csv is an evaluation. Runs that are there with the same settings are skipped.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import add_rows, read_rows
from benchmarks.common.settings import setting, tuning_seed
from benchmarks.setting_trials import Changes, digest_of, label, trial
from lmpolicy import Hyperparameters, LMActorCriticPolicy

State = tuple[int, int, int]
"""Total of the player, card of the dealer, and whether an ace of the player counts as 11; as the env observes it."""
CARDS = {**dict.fromkeys(range(1, 10), 1 / 13), 10: 4 / 13}
"""Probability of each card; 1 is an ace."""
STATES: tuple[State, ...] = tuple(
    (total, card, ace) for card in range(1, 11) for ace in (0, 1) for total in range(12 if ace else 4, 22)
)
EVERY = 10_000
FIELDS = ("settings", "seed", "env_steps", "greedy", "sampled", "wrong", "digest")
"""``wrong`` is the number of states in which the less good action is the more likely one."""


def add(total: int, ace: int, card: int) -> tuple[int, int]:
    """Add a card to a hand.

    :param total: of the hand.
    :param ace: 1 if an ace counts as 11, else 0.
    :param card: 1 to 10.
    :return: the new total, and whether an ace counts as 11 now.
    """
    total += card
    if card == 1 and not ace and total + 10 <= 21:
        return total + 10, 1
    return (total - 10, 0) if ace and total > 21 else (total, ace)


@cache
def _dealt(total: int, ace: int) -> Mapping[int, float]:
    """Probability of what the dealer ends with, who draws until 17; 0 is a bust."""
    if total >= 17:
        return {total if total <= 21 else 0: 1.0}
    ends: dict[int, float] = {}
    for card, chance in CARDS.items():
        for end, probability in _dealt(*add(total, ace, card)).items():
            ends[end] = ends.get(end, 0.0) + chance * probability
    return ends


@cache
def _stick(total: int, card: int) -> float:
    return sum(float(np.sign(total - end)) * chance for end, chance in _dealt(*add(0, 0, card)).items())


def returns(hits: Mapping[State, float]) -> dict[State, tuple[float, float]]:
    """Compute the expected return of sticking and of hitting in each state.

    :param hits: probability of hitting by state, of what is done from the next state on.
    """

    @cache
    def of(total: int, card: int, ace: int) -> tuple[float, float]:
        hit = 0.0
        for drawn, chance in CARDS.items():
            now, still = add(total, ace, drawn)
            hit += chance * (-1.0 if now > 21 else mean(now, card, still))
        return _stick(total, card), hit

    def mean(*state: int) -> float:
        stick, hit = of(*state)
        probability = hits[state]
        return (1 - probability) * stick + probability * hit

    return {state: of(*state) for state in STATES}


@cache
def best() -> dict[State, float]:
    """Find the best play: 1 for the states in which hitting is better, 0 for the others."""
    hits = dict.fromkeys(STATES, 0.0)
    while True:  # policy iteration
        better = {state: float(hit > stick) for state, (stick, hit) in returns(hits).items()}
        if better == hits:
            return hits
        hits = better


def mean_return(hits: Mapping[State, float]) -> float:
    """Compute the expected return of a hand.

    :param hits: probability of hitting by state.
    """
    values = returns(hits)
    total = 0.0
    for first, second, card in product(CARDS, repeat=3):
        held, ace = add(*add(0, 0, first), second)
        stick, hit = values[held, card, ace]
        probability = hits[held, card, ace]
        total += CARDS[first] * CARDS[second] * CARDS[card] * ((1 - probability) * stick + probability * hit)
    return total


def hits_of(policy: LMActorCriticPolicy, env: VecEnv) -> dict[State, float]:
    """Ask a policy for its probability of hitting in every state.

    :param policy: of the language model.
    :param env: Blackjack in words.
    """
    (encode,) = env.get_attr("encode", [0])
    texts = torch.as_tensor(np.stack([encode(state) for state in STATES]))
    with torch.no_grad():
        probabilities: Any = policy.get_distribution(texts).distribution.probs
    return dict(zip(STATES, probabilities[:, 1].tolist(), strict=True))


class Measure(BaseCallback):
    """Measure the policy before the first rollout that begins at or after each multiple of :data:`EVERY`.

    :param env: Blackjack in words.
    """

    def __init__(self, env: VecEnv) -> None:
        super().__init__()
        self.words = env
        self.rows: list[dict[str, Any]] = []

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= EVERY * len(self.rows):
            self.measure()

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self.measure()

    def measure(self) -> None:
        """Add a row."""
        policy: Any = self.model.policy
        hits = hits_of(policy, self.words)
        likely = {state: float(hit > 0.5) for state, hit in hits.items()}
        row = {
            "env_steps": self.num_timesteps,
            "greedy": f"{mean_return(likely):.5f}",
            "sampled": f"{mean_return(hits):.5f}",
            "wrong": sum(likely[state] != good for state, good in best().items()),
        }
        self.rows.append(row)
        print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)


def run(settings: Hyperparameters, seed: int) -> list[dict[str, Any]]:
    """Train once; return a row for each evaluation.

    :param settings: of the training.
    :param seed: of the training.
    """
    words = settings.make_env(seed, n_envs=1, training=False)
    measure = Measure(words)
    model = PPO(LMActorCriticPolicy, settings.make_env(seed), device="cpu", seed=seed, **settings.ppo)
    model.learn(settings.total_timesteps, callback=[*settings.callbacks(), measure])
    words.close()
    return measure.rows


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs="+", type=setting, default=[], metavar="NAME=VALUE", help="settings to change")
    parser.add_argument("--seeds", nargs="+", type=tuning_seed, metavar="SEED", default=[0])
    parser.add_argument("--steps", type=int, help="env steps of training; default: those of the settings")
    parser.add_argument("--output", type=Path, default=RESULTS / "blackjack_exact.csv", help="file")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    changes: Changes = dict(args.set)
    settings = trial("blackjack", changes, args.steps).settings
    digest = digest_of(settings)
    for seed in args.seeds:
        if (digest, str(seed)) not in {(row["digest"], row["seed"]) for row in read_rows(args.output)}:
            same = {"settings": label(changes), "seed": seed, "digest": digest}
            add_rows(args.output, FIELDS, [{**same, **row} for row in run(settings, seed)])
    print(args.output)


if __name__ == "__main__":
    main()

"""Playing episodes at random, and by choosing and writing with a language model that is not trained."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch as th

from benchmarks.zero_shot.cells import NORMALIZATIONS
from lmpolicy import PolicySettings, TextObservationWrapper
from lmpolicy.comparison.evaluating import succeeded
from lmpolicy.lm.actors import make_actor
from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.phrase_actor import PhraseActor
from lmpolicy.lm.queries import PhraseQueries
from lmpolicy.text.spaces import row_keys

FIRST_SEED, DRAWS_SEED = 2_000_000, 0
"""Seed of the first episode; seed of random and sampled actions, in every cell."""
ROWS = 20
"""Prompts that are run at a time. With more, padding and masks cost more than the common forward saves."""
Player = Callable[[Sequence[TextObservationWrapper], np.ndarray], Sequence[Any]]
"""Takes envs and the rows of their prompts, and returns an action for each."""


@dataclass
class Episode:
    """What an episode has come to."""

    total: float = 0.0
    length: int = 0
    errors: int = 0
    success: bool = False
    ended: bool = False

    def add(self, reward: float, terminated: bool, truncated: bool, info: dict[str, Any]) -> None:
        """Count a step."""
        self.total += reward
        self.length += 1
        self.errors += bool(info.get("parse_error", False))
        self.ended = terminated or truncated
        self.success = self.ended and succeeded(reward, truncated and not terminated, info)


def play(envs: Sequence[TextObservationWrapper], player: Player) -> list[Episode]:
    """Play one episode in each env, side by side. Envs whose episode has ended wait.

    :param envs: in words; the episode of the k-th has the seed ``FIRST_SEED + k``.
    :param player: chooses the actions.
    """
    rows = [env.reset(seed=FIRST_SEED + k)[0] for k, env in enumerate(envs)]
    episodes = [Episode() for _ in envs]
    while going := [k for k, episode in enumerate(episodes) if not episode.ended]:
        actions = player([envs[k] for k in going], np.stack([rows[k] for k in going]))
        for k, action in zip(going, actions, strict=True):
            rows[k], *outcome = envs[k].step(action)
            episodes[k].add(*outcome)
    return episodes


def random_player() -> Player:
    """Any of the legal phrases."""
    rng = np.random.default_rng(DRAWS_SEED)
    return lambda envs, _: [int(rng.integers(len(env.prompt.actions))) for env in envs]


class Chooser:
    """Chooses phrases by their scores, which are remembered for all normalisations.

    :param backbone: of the language model.
    :param n_phrases: indices of the action space.
    :param settings: of the policy; the normalisation is named with each choice.
    """

    def __init__(self, backbone: Backbone, n_phrases: int, settings: PolicySettings) -> None:
        self.actor = PhraseActor(backbone, n_phrases, replace(settings, score_normalization="sum"))
        self.queries = {name: PhraseQueries(backbone, n_phrases, name) for name in NORMALIZATIONS}

    @th.no_grad()
    def probabilities(self, rows: np.ndarray, normalization: str) -> th.Tensor:
        """The policy's distribution over phrases, ``(B, K)``.

        :param rows: of prompts, ``(B, max_bytes)``.
        :param normalization: "sum", "token" or "word".
        """
        keys = row_keys(rows)
        scores = th.cat([self.actor.scores(keys[k : k + ROWS])[0] for k in range(0, len(keys), ROWS)])
        for score, query in zip(scores, self.queries[normalization].prompts(keys), strict=True):
            score[: len(query.divisors)] /= th.from_numpy(query.divisors)
        return scores.softmax(dim=-1)

    def player(self, normalization: str, sampled: bool) -> Player:
        """Choose with a normalisation, the most likely phrase or a sampled one."""

        def choose(_: Any, rows: np.ndarray) -> list[int]:
            shares = self.probabilities(rows, normalization)
            found = th.multinomial(shares, 1)[:, 0] if sampled else shares.argmax(dim=-1)
            return found.tolist()

        return choose


class Writer:
    """Writes answers, several to a prompt at a time, since what costs most is to read a prompt.

    The most likely answer to a prompt is remembered. Sampled ones are written ahead for a prompt that comes again, up
    to as many as the times that it came; each is given once, so that all are independent draws.

    :param backbone: of the language model.
    :param space: of the answers.
    :param settings: of the policy.
    """

    def __init__(self, backbone: Backbone, space: Any, settings: PolicySettings) -> None:
        self.actor = make_actor(backbone, space, settings)
        self.greedy: dict[bytes, np.ndarray] = {}
        self.ahead: defaultdict[bytes, list[np.ndarray]] = defaultdict(list)
        self.visits: Counter[bytes] = Counter()

    def player(self, sampled: bool) -> Player:
        """Write the most likely tokens, or sampled ones."""
        return self._sampled if sampled else self._most_likely

    def _most_likely(self, _: Any, rows: np.ndarray) -> list[np.ndarray]:
        keys = row_keys(rows)
        new = {key: k for k, key in enumerate(keys) if key not in self.greedy}
        if new:
            self.greedy |= dict(zip(new, self._write(rows[list(new.values())], sampled=False), strict=True))
        return [self.greedy[key] for key in keys]

    def _sampled(self, _: Any, rows: np.ndarray) -> list[np.ndarray]:
        keys = row_keys(rows)
        asked = Counter(keys)
        self.visits += asked
        lacking = [key for key in asked if asked[key] > len(self.ahead[key])]
        if lacking:
            counts = [min(self.visits[key], max(ROWS, asked[key])) for key in lacking]
            places = np.repeat([keys.index(key) for key in lacking], counts)
            for place, answer in zip(places, self._write(rows[places], sampled=True), strict=True):
                self.ahead[keys[place]].append(answer)
        return [self.ahead[key].pop() for key in keys]

    @th.no_grad()
    def _write(self, rows: np.ndarray, sampled: bool) -> list[np.ndarray]:
        parts = [th.from_numpy(rows[k : k + ROWS]) for k in range(0, len(rows), ROWS)]
        return [answer for part in parts for answer in self.actor.choose(part, not sampled).numpy()]

"""Answer observations in one of two ways: choose a phrase, or write text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.distributions import CategoricalDistribution, Distribution

from lmpolicy.lm.actor import ROWS, Actor, Decision
from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.behaviour import AnswerTotals, choice_statistics
from lmpolicy.lm.caches import Cache, ScoreMemory
from lmpolicy.lm.comparing import AnswerComparison, Comparison, PhraseComparison, row_of
from lmpolicy.lm.prefixes import Tokens
from lmpolicy.lm.queries import AnswerQueries, PhraseQueries, Query
from lmpolicy.lm.reference import Reference
from lmpolicy.lm.sampler import Sampler
from lmpolicy.lm.scorer import Scorer, Scores
from lmpolicy.lm.settings import PolicySettings, check_tokenizer
from lmpolicy.lm.spread import spread_over_processes
from lmpolicy.text.prompt import CUE
from lmpolicy.text.spaces import TokenSpace, row_keys


class PhraseActor(Actor):
    """Choose among the legal phrases of a prompt.

    The probability of a phrase is the softmax over the scores of the legal phrases. Without gradient, scores and values
    are remembered until the weights change. A prompt seen before in a rollout then costs no forward pass.

    :param backbone: language model with its tokenizer and value head.
    :param n_phrases: K, number of indices of the action space.
    :param settings: settings of the policy.
    """

    queries: PhraseQueries

    def __init__(self, backbone: Backbone, n_phrases: int, settings: PolicySettings) -> None:
        scorer = Scorer(
            backbone, n_phrases, None, settings.temperature, settings.micro_batch_size, settings.cache_bytes
        )
        # Half of the bytes is for the scores of the reference, if there is one.
        self._memory = ScoreMemory(scorer.limits.scores // (1 if settings.reference is None else 2))
        queries = PhraseQueries(backbone, n_phrases, settings.score_normalization, scorer.limits.queries)
        super().__init__(scorer, queries)

    def act(self, observations: th.Tensor, deterministic: bool) -> Decision:
        """Choose a phrase for each observation, with its log-probability and value."""
        return self._decide(observations, lambda distribution: distribution.get_actions(deterministic))

    def choose(self, observations: th.Tensor, deterministic: bool) -> th.Tensor:
        """Choose a phrase for each observation."""
        return self.distribution(observations).get_actions(deterministic)

    def evaluate(self, observations: th.Tensor, actions: th.Tensor) -> Decision:
        """Score given phrases, with gradient where gradients are on."""
        return self._decide(observations, lambda _: actions.long().flatten())

    def values(self, observations: th.Tensor) -> th.Tensor:
        """Return the values of prompts, ``(B, 1)``."""
        return self.scores(row_keys(observations.cpu().numpy()))[1][:, None]

    def distribution(self, observations: th.Tensor) -> CategoricalDistribution:
        """Return the distribution over phrases; illegal indices have probability 0."""
        return _distribution(self.scores(row_keys(observations.cpu().numpy()))[0])

    @th.no_grad()
    def probabilities(self, keys: Sequence[bytes]) -> th.Tensor:
        """Return the probability of every phrase, ``(N, K)`` on the CPU."""
        starts = range(0, len(keys), ROWS)
        parts = [self.scores(keys[start : start + ROWS])[0].float().cpu() for start in starts]
        return th.cat(parts).softmax(dim=-1)

    def comparison(self, reference: Reference) -> Comparison:
        """Return how choices are compared with those of a reference."""
        return PhraseComparison(self.scorer, reference, self.queries)

    def begin_rollout(self) -> None:
        """Do nothing: the rollout buffer holds what the statistics need."""

    def rollout_statistics(self, keys: Sequence[bytes], actions: NDArray[Any]) -> dict[str, float]:
        """Describe how phrases were chosen in a rollout."""
        n_legal = [len(query.divisors) for query in self._queries(keys)]
        choices = choice_statistics(keys, self.probabilities(keys), actions[:, 0], np.array(n_legal))
        return {**choices, **super().rollout_statistics(keys, actions)}

    def scores(self, keys: Sequence[bytes]) -> tuple[th.Tensor, th.Tensor]:
        """Return the scores of phrases and the values of prompts.

        Without gradient, prompts that were seen since the weights last changed are not run again.

        :param keys: keys of the prompts, as :func:`lmpolicy.text.spaces.row_keys` returns them; B of them.
        :return: scores, float32 ``(B, K)``, :data:`~lmpolicy.lm.scorer.ILLEGAL` where a prompt has no such phrase; and
            values, float32 ``(B,)``.
        """
        if th.is_grad_enabled():
            found = self.scorer(self.queries.prompts(keys))
            return found.phrases, found.values
        if self._weights.changed():
            self.forget()
        rows = self._memory.rows(keys, lambda places: self._run([keys[place] for place in places]))
        return rows[:, :-1], rows[:, -1]

    def _run(self, keys: Sequence[bytes]) -> th.Tensor:
        """Return the scores and the value of each prompt, ``(B, K + 1)``."""
        found = self.scorer(self.queries.prompts(keys))
        return th.cat([found.phrases, found.values[:, None]], dim=1)

    def caches(self) -> list[Cache]:
        """Return what is remembered, the scores of the rollout included."""
        return [self._memory, *super().caches()]

    def forget(self) -> None:
        """Drop what was computed from the weights, the remembered scores included."""
        self._memory.clear()
        super().forget()

    def _decide(self, observations: th.Tensor, actions_of: Callable[[CategoricalDistribution], th.Tensor]) -> Decision:
        """Decide by the distribution over phrases.

        :param actions_of: choice of actions ``(B,)``, given the distribution.
        """
        keys = row_keys(observations.cpu().numpy())
        scores, values = self.scores(keys)
        distribution = _distribution(scores)
        actions, chances = actions_of(distribution), distribution.distribution
        log_prob, entropy = distribution.log_prob(actions), distribution.entropy()
        return Decision(keys, actions, log_prob, entropy, values[:, None], chances.logits, chances.probs, scores)


def _distribution(scores: th.Tensor) -> CategoricalDistribution:
    return CategoricalDistribution(scores.shape[1]).proba_distribution(action_logits=scores)


class TextActor(Actor):
    """Write answers, and choose phrases where the space has phrases.

    The log-probability of an answer is the sum over its tokens, including the tokens that ended it. Where the space has
    phrases, one is chosen after each answer. Its log-probability, that of the softmax over the scores of the legal
    phrases, is then added.

    PPO is given the mean over these tokens and the phrase, or their sum. With the mean (``ratio_level="mean"``), PPO's
    ratio is the geometric mean of the tokens' ratios, see Group Sequence Policy Optimization (Zheng et al. 2025). The
    sum (``"sum"``) is the exact log-probability of the answer, but for long answers its ratio saturates PPO's clip.

    :param backbone: language model with its tokenizer and value head.
    :param space: action space, whose rows hold the answers.
    :param settings: settings of the policy.
    """

    queries: AnswerQueries

    def __init__(self, backbone: Backbone, space: TokenSpace, settings: PolicySettings) -> None:
        self.space, self.ratio_level = space, settings.ratio_level
        stop = settings.stop
        if stop is None:  # with a chat template, a model ends its message by itself
            stop = () if backbone.renderer.has_template else ("\n",)
        self.stop = (*stop, CUE) if space.n_phrases else tuple(stop)
        self._totals = AnswerTotals()
        scorer = Scorer(
            backbone,
            space.n_phrases,
            space.n_ids,
            settings.temperature,
            settings.micro_batch_size,
            settings.cache_bytes,
            n_tokens=0 if settings.reference is None else space.max_new_tokens,
        )
        queries = AnswerQueries(backbone, space, settings.score_normalization, scorer.limits.queries)
        self._sampler = Sampler(scorer, queries.ends, self.stop)
        super().__init__(scorer, queries)

    def act(self, observations: th.Tensor, deterministic: bool) -> Decision:
        """Write an answer to each observation, and score it."""
        keys = row_keys(observations.cpu().numpy())
        answers = self._write(keys, deterministic)
        scores = self._ask(self.queries.answers(keys, answers))
        unfinished = sum(not self._sampler.ended(answer) for answer in answers)
        self._totals.count(answers, unfinished, float(scores.answer_entropy.detach().sum()))
        return self._decision(keys, self._rows(answers, scores, deterministic), scores)

    def choose(self, observations: th.Tensor, deterministic: bool) -> th.Tensor:
        """Write an answer to each observation."""
        keys = row_keys(observations.cpu().numpy())
        answers = self._write(keys, deterministic)
        return self._rows(
            answers, self._ask(self.queries.answers(keys, answers)) if self.space.n_phrases else None, deterministic
        )

    def evaluate(self, observations: th.Tensor, actions: th.Tensor) -> Decision:
        """Score given answers, with gradient where gradients are on."""
        keys = row_keys(observations.cpu().numpy())
        rows = actions.long()  # SB3 passes rows as float32, which holds every id of a TokenSpace exactly
        answers = [self.space.split(row)[0] for row in rows.cpu().numpy()]
        return self._decision(keys, rows, self._ask(self.queries.answers(keys, answers)))

    def values(self, observations: th.Tensor) -> th.Tensor:
        """Return the values of prompts, ``(B, 1)``."""
        return self._ask(self.queries.prompts(row_keys(observations.cpu().numpy()))).values[:, None]

    def distribution(self, observations: th.Tensor) -> Distribution:
        """Raise an error, because free text has no list of actions.

        :raises NotImplementedError: always; the message names what to use instead.
        """
        raise NotImplementedError(
            "free text has no distribution over a list of actions; use evaluate_actions(obs, actions), or make the "
            'wrapper with action_mode="score"'
        )

    def probabilities(self, keys: Sequence[bytes]) -> th.Tensor:
        """Return an empty tensor, ``(N, 0)``: free text has no list of actions."""
        return th.zeros(len(keys), 0)

    def ends_answer(self, answer: list[int]) -> bool:
        """Return whether the policy stops writing after these tokens.

        :param answer: token ids, at least one.
        """
        return self._sampler.ended(answer)

    def comparison(self, reference: Reference) -> Comparison:
        """Return how answers are compared with those of a reference."""
        return AnswerComparison(self.scorer, reference, self.queries, self.space, self.ratio_level)

    def begin_rollout(self) -> None:
        """Start the totals over a new rollout's answers."""
        self._totals = AnswerTotals()

    def rollout_statistics(self, keys: Sequence[bytes], actions: NDArray[Any]) -> dict[str, float]:
        """Describe how answers were written in a rollout."""
        return {**self._totals.statistics(), **super().rollout_statistics(keys, actions)}

    def forget(self) -> None:
        """Drop what was computed from the weights, the sampler's merged adapters included."""
        self._sampler.forget()
        super().forget()

    def write(self, prompts: Sequence[Tokens], limit: int, deterministic: bool) -> list[list[int]]:
        """Sample an answer to each prompt in this process, see :class:`~lmpolicy.lm.sampler.Sampler`."""
        return self._sampler.run(prompts, limit, deterministic)

    def _write(self, keys: list[bytes], deterministic: bool) -> list[list[int]]:
        """Sample an answer to each prompt."""
        if self._weights.changed():
            self.forget()
        prompts = [query.context for query in self.queries.prompts(keys)]
        return self._sampler(prompts, self.space.max_new_tokens, deterministic)

    def _ask(self, queries: list[Query]) -> Scores:
        """Score queries with the weights as they are now."""
        if self._weights.changed():
            self.forget()
        return self.scorer(queries)

    def _rows(self, answers: list[list[int]], scores: Scores | None, deterministic: bool) -> th.Tensor:
        """Turn answers into int64 rows of the space, ``(B, W)``, and choose the phrase at the end of each row.

        :param scores: scores of the phrases. ``None``: the space has no phrases.
        """
        rows = th.from_numpy(np.stack([self.space.row(answer) for answer in answers]))
        if scores is not None and self.space.n_phrases:
            shares = scores.phrases.softmax(dim=-1)
            chosen = shares.argmax(dim=-1) if deterministic else th.multinomial(shares, 1)[:, 0]
            rows[:, -1] = chosen.cpu()
        return rows

    def _decision(self, keys: list[bytes], rows: th.Tensor, scores: Scores) -> Decision:
        """Reduce the scores of answers to the log-probability and entropy that PPO is given."""
        total, entropy, count = scores.answer_log_prob, scores.answer_entropy, scores.answer_tokens
        if self.space.n_phrases:
            phrases = scores.phrases.log_softmax(dim=-1)
            total = total + phrases.gather(1, rows[:, -1:].to(phrases.device))[:, 0]
            entropy = entropy - (phrases.exp() * phrases).sum(dim=-1)
            count = count + 1
        if self.ratio_level == "mean":
            total, entropy = total / count, entropy / count
        return Decision(keys, rows, total, entropy, scores.values[:, None], total, scored=row_of(scores))


def make_actor(backbone: Backbone, action_space: spaces.Space, settings: PolicySettings) -> Actor:
    """Make the actor for an action space.

    :param backbone: language model with its tokenizer and value head.
    :param action_space: ``Discrete(K)`` for an actor that chooses phrases, :class:`~lmpolicy.TokenSpace` for one that
        writes.
    :param settings: settings of the policy.
    :raises ValueError: if the space was made for another tokenizer, or if an encoder-decoder model was to write; the
        message says what to pass to the wrapper.
    """
    if isinstance(action_space, TokenSpace):
        if backbone.answer_start is not None:
            raise ValueError(
                f"{backbone.name} is an encoder-decoder model, which chooses among phrases but does not write: make "
                'the wrapper with action_mode="score", or take a causal LM for written answers'
            )
        check_tokenizer(action_space, backbone.tokenizer, settings.model)
        actor: Actor = TextActor(backbone, action_space, settings)
    else:
        actor = PhraseActor(backbone, int(action_space.n), settings)  # type: ignore[attr-defined]
    actor.scorer.spread = spread_over_processes(backbone, action_space, settings)
    return actor

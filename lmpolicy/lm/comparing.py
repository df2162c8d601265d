"""Compare decisions with those of a reference, whichever way the policy answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch as th

from lmpolicy.lm.queries import AnswerQueries, PhraseQueries
from lmpolicy.lm.reference import (
    DIRECTIONS,
    POLICY_TO_REFERENCE,
    Reference,
    estimated_divergence,
    exact_divergence,
)
from lmpolicy.lm.scorer import Scorer, Scores
from lmpolicy.text.spaces import PADDING_ID, TokenSpace


class Comparison(ABC):
    """Say what a decision is compared in: one row of numbers for each, W of them.

    :param scorer: scorer of the policy.
    :param reference: which divergence is asked.
    """

    def __init__(self, scorer: Scorer, reference: Reference) -> None:
        self.scorer, self.reference = scorer, reference

    @abstractmethod
    def names(self, keys: Sequence[bytes], actions: th.Tensor) -> list[bytes]:
        """Return names of the decisions; those of the same name have the same row.

        :param keys: keys of the prompts, as :func:`lmpolicy.text.spaces.row_keys` returns them; B of them.
        :param actions: actions, ``(B,)`` or ``(B, W)``.
        """

    @abstractmethod
    def rows(self, keys: Sequence[bytes], actions: th.Tensor) -> th.Tensor:
        """Score decisions with the weights as they are now, and remember nothing; parameters as in :meth:`names`.

        :return: float32 ``(B, W)``.
        """

    @abstractmethod
    def divergence(self, actions: th.Tensor, own: th.Tensor, reference: th.Tensor) -> th.Tensor:
        """Return the divergence between policy and reference.

        :param actions: actions, ``(B,)`` or ``(B, W)``.
        :param own: rows of the policy, ``(B, W)``.
        :param reference: rows of the reference, ``(B, W)``.
        :return: nats, ``(B,)``.
        """


class PhraseComparison(Comparison):
    """Compare choices in the scores of all phrases.

    :param scorer: scorer of the policy.
    :param reference: which divergence is asked.
    :param queries: reader that turns rows of prompts into queries.
    """

    def __init__(self, scorer: Scorer, reference: Reference, queries: PhraseQueries) -> None:
        super().__init__(scorer, reference)
        self.queries = queries

    def names(self, keys: Sequence[bytes], actions: th.Tensor) -> list[bytes]:
        """Return the keys: the scores of all phrases are the same whichever was chosen."""
        return list(keys)

    def rows(self, keys: Sequence[bytes], actions: th.Tensor) -> th.Tensor:
        """Return the scores of the phrases."""
        return self.scorer(self.queries.prompts(keys)).phrases

    def divergence(self, actions: th.Tensor, own: th.Tensor, reference: th.Tensor) -> th.Tensor:
        """Return the exact divergence over the legal phrases."""
        return exact_divergence(own.log_softmax(dim=-1), reference.log_softmax(dim=-1), self.reference.direction)


class AnswerComparison(Comparison):
    """Compare written answers token by token, and the choice behind them in the scores of the phrases.

    The divergence is reduced as the log-probability is that PPO is given: to its mean over tokens and choice with
    ``ratio_level="mean"``, else to its sum.

    :param scorer: scorer of the policy.
    :param reference: which divergence is asked.
    :param queries: reader that turns rows of prompts and answers into queries.
    :param space: action space, whose rows hold the answers.
    :param ratio_level: ``"mean"`` or ``"sum"``, see :class:`lmpolicy.lm.text_actor.TextActor`.
    :raises ValueError: for a direction that answers of the policy cannot estimate; the message names the other one.
    """

    def __init__(
        self, scorer: Scorer, reference: Reference, queries: AnswerQueries, space: TokenSpace, ratio_level: str
    ) -> None:
        super().__init__(scorer, reference)
        self.queries, self.space, self.ratio_level = queries, space, ratio_level
        if reference.direction != POLICY_TO_REFERENCE:
            raise ValueError(
                f"a policy that writes its answers takes a reference with direction={DIRECTIONS[0]!r}, got "
                f"{reference.direction!r}: the other one would be estimated from answers of the reference"
            )

    def names(self, keys: Sequence[bytes], actions: th.Tensor) -> list[bytes]:
        """Return each key with the answer to its prompt."""
        answers = actions[:, : self.space.max_new_tokens].cpu().numpy()
        return [key + b"\0" + answer.tobytes() for key, answer in zip(keys, answers, strict=True)]

    def rows(self, keys: Sequence[bytes], actions: th.Tensor) -> th.Tensor:
        """Return the scores of the phrases and the log-probabilities of the answer's tokens."""
        answers = [self.space.split(row)[0] for row in actions.cpu().numpy()]
        return row_of(self.scorer(self.queries.answers(keys, answers)))

    def divergence(self, actions: th.Tensor, own: th.Tensor, reference: th.Tensor) -> th.Tensor:
        """Return the estimate over the tokens, and the exact divergence of the choice, joined as PPO's ratio is."""
        n_phrases, direction = self.space.n_phrases, self.reference.direction
        written = actions[:, : self.space.max_new_tokens].to(own.device) != PADDING_ID
        tokens = estimated_divergence(own[:, n_phrases:], reference[:, n_phrases:], self.reference.estimate)
        total, count = tokens.where(written, 0.0).sum(dim=-1), written.sum(dim=-1)
        if n_phrases:
            mine, its = (rows[:, :n_phrases].log_softmax(dim=-1) for rows in (own, reference))
            total, count = total + exact_divergence(mine, its, direction), count + 1
        return total / count if self.ratio_level == "mean" else total


def row_of(scores: Scores) -> th.Tensor:
    """Return what an answer is compared in: the scores of the phrases, then the log-probabilities of its tokens.

    :param scores: scores of B queries.
    :return: float32 ``(B, K + W)``.
    """
    return th.cat([scores.phrases, scores.tokens], dim=1)

"""Spread the model's work over several processes, while the program runs in one."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray

from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.grouping import in_order, shares
from lmpolicy.lm.prefixes import Tokens
from lmpolicy.lm.processes import ProcessError, Processes, running
from lmpolicy.lm.queries import Query
from lmpolicy.lm.sampler import Sampler
from lmpolicy.lm.scorer import Scorer, Scores
from lmpolicy.lm.settings import PolicySettings

WITH_GRADIENT = ("phrases", "answer_log_prob", "answer_entropy", "values", "tokens")
"""Scores that a gradient may come for."""
_NUMBERS = itertools.count(1)


class Spread:
    """Let several processes score queries and sample answers, each some of them.

    The scores are those of one process, and so are the gradients: the other processes are sent the gradient of the loss
    by their scores, and the gradients by the weights are added up before they reach ``weight.grad``. The optimizer, the
    envs, all random choices among phrases and all files are in rank 0 alone.

    :param processes: the processes.
    :param backbone: model of rank 0; the others load the same base model, and are sent the trainable weights whenever
        these have changed.
    :param action_space: as for :func:`lmpolicy.lm.actors.make_actor`.
    :param settings: settings of the policy.
    """

    def __init__(
        self, processes: Processes, backbone: Backbone, action_space: spaces.Space, settings: PolicySettings
    ) -> None:
        self.processes, self.backbone, self.number = processes, backbone, next(_NUMBERS)
        self._action_space, self._settings = action_space, settings
        self._names = trainable(backbone).keys()
        self._weights: list[th.nn.Parameter] = []
        self._versions: list[int] = []
        self._opened_on = ""  # kind of device that the other processes have the model on
        weakref.finalize(self, processes.closed.append, self.number)

    def changed(self) -> None:
        """Note that weights were written, so that they are sent again before they are used."""
        self._versions = []

    def score(self, scorer: Scorer, queries: Sequence[Query]) -> Scores:
        """Score queries, some in each process.

        :param scorer: scorer of rank 0, for its own part.
        :param queries: queries that are all different.
        """
        if len(queries) < 2 or not self._as_trained():
            return scorer.run(queries)
        parts = shares([query.context for query in queries], self.processes.size)
        if len(parts) == 1:
            return scorer.run(queries)
        asked = {rank: [queries[place] for place in part] for rank, part in enumerate(parts)}
        own = asked.pop(0)
        self._send_weights()
        training = self.backbone.value_head.training
        contents = {rank: (some, th.is_grad_enabled(), training) for rank, some in asked.items()}
        if th.is_grad_enabled():
            exchange = Exchange(self, list(asked))
            # Made first, so that the backward pass comes to it last, when rank 0 has done its own part.
            token = _Receive.apply(exchange, *self._weights)
            exchange.number = self.processes.post("score", self.number, contents)
            found = [scorer.run(own), *exchange.scores(token)]
        else:
            number = self.processes.post("score", self.number, contents)
            found = [scorer.run(own)]
            found += [self._tensors(self.collect(rank, number)) for rank in asked]
        return Scores(*in_order(found, np.concatenate(parts)))

    def sample(self, sampler: Sampler, prompts: Sequence[Tokens], limit: int, greedy: bool) -> list[list[int]]:
        """Sample an answer to each prompt, some in each process.

        Rank 0 draws a seed for the others, so a program with a seed writes the same texts again with as many processes.

        :param sampler: sampler of rank 0, for its own part.
        :param prompts: as for :class:`~lmpolicy.lm.sampler.Sampler`.
        :param limit: as for the sampler.
        :param greedy: as for the sampler.
        """
        if len(prompts) < 2 or not self._as_trained():
            return sampler.run(prompts, limit, greedy)
        parts = shares(prompts, self.processes.size)
        self._send_weights()
        seed = None if greedy else int(th.randint(2**62, ()))
        asked = {
            rank: ([prompts[place] for place in part], limit, greedy, seed) for rank, part in enumerate(parts) if rank
        }
        number = self.processes.post("sample", self.number, asked)
        found = sampler.run([prompts[place] for place in parts[0]], limit, greedy)
        for rank in asked:
            found += self.collect(rank, number)
        answers: list[list[int]] = [[] for _ in prompts]
        for place, answer in zip(itertools.chain(*parts), found, strict=True):
            answers[place] = answer
        return answers

    def collect(self, rank: int, number: int) -> Any:
        """Wait for what a process has computed, and take over the features that its value head has seen.

        :param rank: the process.
        :param number: number of the command.
        """
        found, seen = self.processes.collect(rank, number)
        self.backbone.value_head.add_seen(seen)
        return found

    def _as_trained(self) -> bool:
        """Return whether the model is as it is trained.

        Where an adapter is switched off for a while, or another one is on, rank 0 computes alone: the others have only
        the weights that train.
        """
        if not self._versions:
            found = trainable(self.backbone)
            if found.keys() != self._names:
                return False
            self._weights = list(found.values())
        return all(weight.requires_grad for weight in self._weights)

    def _send_weights(self) -> None:
        """Bring the weights of the other processes up to date."""
        versions = [weight._version for weight in self._weights]
        device = self._weights[0].device.type
        if device == self._opened_on and versions == self._versions:
            return
        if device != self._opened_on:
            self._open(device)
        with self.processes.lock:
            self.processes.post("weights", self.number, dict.fromkeys(self.processes.others), answered=False)
            self.processes.broadcast(flat([*self._weights, *self.backbone.value_head.buffers()]))
        self._versions = versions

    def _open(self, device: str) -> None:
        """Let the other processes load the model."""
        self.backbone.settle_dtype()
        settings = replace(self._settings, adapter=None, lora=self.backbone.lora)
        mine, content = description(self.backbone), (settings, self._action_space, device)
        number = self.processes.post("open", self.number, dict.fromkeys(self.processes.others, content))
        for rank in self.processes.others:
            said = self.processes.collect(rank, number)
            if said != mine:
                what = ", ".join(name for name, value in mine.items() if said[name] != value)
                raise ProcessError(
                    f"rank {rank} has loaded another model than rank 0; they differ in: {what}. Give all machines the "
                    "same files and the same versions of the packages, and pass dtype in policy_kwargs"
                )
        self._opened_on = device

    def _tensors(self, arrays: Iterable[NDArray[Any]]) -> Scores:
        return Scores(*(th.from_numpy(array).to(self._weights[0].device) for array in arrays))

    def gather(self, exchange: Exchange) -> list[th.Tensor | None]:
        """Return the sum of the other processes' gradients by the weights.

        :param exchange: forward pass whose gradient is computed.
        """
        has_gradient = np.zeros(len(self._weights), dtype=bool)
        for rank in exchange.ranks:
            has_gradient |= self.collect(rank, exchange.backward_number)
        total = th.zeros(sum(weight.numel() for weight in self._weights), device=self._weights[0].device)
        with self.processes.lock:
            contents = dict.fromkeys(self.processes.others, exchange.number)
            self.processes.post("gradient", self.number, contents, answered=False)
            self.processes.add_up(total)
        parts = total.split([weight.numel() for weight in self._weights])
        return [
            part.view_as(weight).to(weight.dtype) if has else None
            for part, weight, has in zip(parts, self._weights, has_gradient.tolist(), strict=True)
        ]


class Exchange:
    """Follow one forward pass with gradient in several processes, and its backward pass.

    :param spread: what the pass is of.
    :param ranks: the other processes that have a part.
    """

    def __init__(self, spread: Spread, ranks: list[int]) -> None:
        self.spread, self.ranks = spread, ranks
        self.number = self.backward_number = 0
        self._is_spent = False

    def __del__(self) -> None:
        if self.number and not self._is_spent:  # the program has dropped the scores without a backward pass
            self.spread.processes.dropped.append(self.number)

    def scores(self, token: th.Tensor) -> list[Scores]:
        """Wait for the scores of the other processes.

        :param token: tensor that connects these scores with the weights.
        """
        found = [self.spread._tensors(self.spread.collect(rank, self.number)) for rank in self.ranks]
        tensors = [getattr(scores, name) for scores in found for name in WITH_GRADIENT]
        connected = iter(_Send.apply(self, token, *tensors) if tensors else ())
        return [scores._replace(**{name: next(connected) for name in WITH_GRADIENT}) for scores in found]

    def send(self, gradients: Sequence[th.Tensor | None]) -> None:
        """Send the gradients of the loss by the scores, and let the other processes begin their backward pass.

        :param gradients: gradients by the tensors of :data:`WITH_GRADIENT`, of one process after the other.
        """
        if self._is_spent:
            raise RuntimeError("a second backward pass through the same scores is not possible with several processes")
        self._is_spent = True
        arrays = [None if one is None else one.detach().float().cpu().numpy() for one in gradients]
        width = len(WITH_GRADIENT)
        contents = {
            rank: (self.number, arrays[width * place : width * (place + 1)]) for place, rank in enumerate(self.ranks)
        }
        self.backward_number = self.spread.processes.post("backward", self.spread.number, contents)


class _Receive(th.autograd.Function):
    """Add the gradients of the other processes to those of the weights."""

    @staticmethod
    def forward(ctx: Any, exchange: Exchange, *weights: th.Tensor) -> th.Tensor:
        ctx.exchange = exchange
        return weights[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        return None, *ctx.exchange.spread.gather(ctx.exchange)


class _Send(th.autograd.Function):
    """Pass the scores of other processes on, and the gradients by them back."""

    @staticmethod
    def forward(ctx: Any, exchange: Exchange, token: th.Tensor, *scores: th.Tensor) -> Any:
        ctx.exchange, ctx.zero, ctx.n_scores = exchange, token.detach(), len(scores)
        ctx.set_materialize_grads(False)
        return tuple(one.clone() for one in scores)

    @staticmethod
    def backward(ctx: Any, *gradients: th.Tensor | None) -> Any:
        ctx.exchange.send(gradients)
        return None, ctx.zero, *[None] * ctx.n_scores


def spread_over_processes(backbone: Backbone, action_space: spaces.Space, settings: PolicySettings) -> Spread | None:
    """Return what spreads a policy's work.

    :param backbone: model of rank 0.
    :param action_space: as for :func:`lmpolicy.lm.actors.make_actor`.
    :param settings: settings of the policy.
    :return: ``None`` if this process is the only one, or not rank 0.
    """
    processes = running()
    return None if processes is None else Spread(processes, backbone, action_space, settings)


def trainable(backbone: Backbone) -> dict[str, th.nn.Parameter]:
    """Return the weights that train, by name.

    :param backbone: the model.
    """
    return {name: weight for name, weight in backbone.named_parameters() if weight.requires_grad}


def flat(tensors: Iterable[th.Tensor]) -> th.Tensor:
    """Return all numbers of some tensors in one float32 tensor.

    :param tensors: the tensors.
    """
    return th.cat([tensor.detach().reshape(-1).float() for tensor in tensors])


def description(backbone: Backbone) -> dict[str, Any]:
    """Return what must be equal in all processes.

    :param backbone: the model.
    """
    frozen = next((weight for weight in backbone.parameters() if not weight.requires_grad), None)
    return {
        "base model": backbone.fingerprint,
        "precision": None if frozen is None else str(frozen.dtype),
        "trainable weights": [(name, tuple(weight.shape)) for name, weight in trainable(backbone).items()],
    }

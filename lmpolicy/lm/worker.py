"""Compute what rank 0 asks for, in the other processes."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import numpy as np
import torch as th

from lmpolicy.lm.actors import make_actor
from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.processes import Answer, Command, Processes
from lmpolicy.lm.scorer import Scores
from lmpolicy.lm.spread import WITH_GRADIENT, description, flat, trainable
from lmpolicy.lm.text_actor import TextActor


class Replica:
    """Hold a policy of rank 0 in another process, without optimizer.

    :param processes: the processes.
    :param settings: settings of the policy.
    :param action_space: action space of the policy.
    :param device: kind of device that the policy is on.
    """

    def __init__(self, processes: Processes, settings: Any, action_space: Any, device: str) -> None:
        self.processes = processes
        self.backbone = Backbone(settings).to(device)
        self.backbone.settle_dtype()
        self.actor = make_actor(self.backbone, action_space, settings)
        self.weights = list(trainable(self.backbone).values())
        self.graphs: dict[int, Scores] = {}
        self.gradients: dict[int, list[th.Tensor | None]] = {}

    @th.no_grad()
    def take_weights(self) -> None:
        """Take over the weights of rank 0."""
        self.graphs.clear()
        self.gradients.clear()
        tensors = [*self.weights, *self.backbone.value_head.buffers()]
        numbers = self.processes.broadcast(flat(tensors))
        for tensor, part in zip(tensors, numbers.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))
        self.actor.forget()

    def score(self, number: int, queries: Any, with_gradient: bool, training: bool) -> list[Any]:
        """Score queries.

        :param number: number of the command.
        :param queries: the queries.
        :param with_gradient: whether a backward pass may follow.
        :param training: whether the value head is in training mode.
        """
        if training != self.backbone.training:
            self.backbone.train(training)
        with th.set_grad_enabled(with_gradient):
            scores = self.actor.scorer.run(queries)
        if with_gradient:
            self.graphs[number] = scores
        return [tensor.detach().cpu().numpy() for tensor in scores]

    def sample(self, prompts: Any, limit: int, greedy: bool, seed: int | None) -> list[list[int]]:
        """Sample answers.

        :param prompts: token ids of each prompt.
        :param limit: largest length of an answer.
        :param greedy: whether to take the most likely tokens.
        :param seed: seed of rank 0; each process has its own numbers.
        """
        if seed is not None:
            th.manual_seed(seed + self.processes.rank)
        assert isinstance(self.actor, TextActor)
        return self.actor.write(prompts, limit, greedy)

    def backward(self, number: int, arrays: list[Any]) -> Any:
        """Compute the gradients by the weights, and keep them until all processes have theirs.

        :param number: number of the forward pass.
        :param arrays: gradients of the loss by the scores, in the order of the scores.
        :return: which weights have a gradient.
        """
        scores = self.graphs.pop(number)
        device = self.weights[0].device
        found = [
            (getattr(scores, name), th.from_numpy(array).to(device))
            for name, array in zip(WITH_GRADIENT, arrays, strict=True)
            if array is not None and getattr(scores, name).requires_grad
        ]
        for weight in self.weights:
            weight.grad = None
        th.autograd.backward([tensor for tensor, _ in found], [gradient for _, gradient in found])
        self.gradients[number] = [weight.grad for weight in self.weights]
        return np.array([weight.grad is not None for weight in self.weights])

    def send_gradient(self, number: int) -> None:
        """Add the gradients to those of the other processes, in rank 0.

        :param number: number of the forward pass, of which this process may have had no part.
        """
        gradients = self.gradients.pop(number, None) or [None] * len(self.weights)
        pairs = zip(self.weights, gradients, strict=True)
        self.processes.add_up(flat(th.zeros_like(w) if g is None else g for w, g in pairs))


def serve(processes: Processes) -> None:
    """Do what rank 0 asks for, until its program ends.

    A failure is told to rank 0, which stops with its message.

    :param processes: the processes.
    :raises ProcessError: if rank 0 has ended without a word.
    """
    logging.getLogger("lmpolicy").setLevel(logging.ERROR)  # rank 0 says the same
    replicas: dict[int, Replica] = {}
    failure = ""
    while True:
        command = processes.next_command()
        if command.name == "end":
            return
        try:
            _forget(replicas, command)
            content = _obey(processes, replicas, command)
        except Exception:
            failure = traceback.format_exc()
        if command.name in ("open", "score", "sample", "backward"):
            processes.answer(Answer(command.number, None if failure else content, failure))
            failure = ""


def _forget(replicas: dict[int, Replica], command: Command) -> None:
    for number in command.closed:
        replicas.pop(number, None)
    for replica in replicas.values():
        for number in command.dropped:
            replica.graphs.pop(number, None)


def _obey(processes: Processes, replicas: dict[int, Replica], command: Command) -> Any:
    """Carry out a command, and return what to answer."""
    if command.name == "drop":
        return None
    if command.name == "open":
        replica = replicas[command.policy] = Replica(processes, *command.content)
        return description(replica.backbone)
    replica = replicas[command.policy]
    if command.name == "weights":
        return replica.take_weights()
    if command.name == "gradient":
        return replica.send_gradient(command.content)
    if command.name == "score":
        found: Any = replica.score(command.number, *command.content)
    elif command.name == "sample":
        found = replica.sample(*command.content)
    else:
        found = replica.backward(*command.content)
    return found, replica.backbone.value_head.take_seen()

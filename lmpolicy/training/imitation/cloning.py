"""Train a policy on given actions, through its own log-probabilities and its own optimizer."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from lmpolicy.lm.phrase_actor import PhraseActor
from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.text.spaces import PADDING_BYTE, TextSpace
from lmpolicy.training.watching.gradient_norms import unmeasured


@dataclass(frozen=True)
class Rows:
    """Hold prompts and actions as the policy takes them, N of them.

    :param keys: keys of the prompts, as :func:`lmpolicy.text.spaces.row_keys` returns them.
    :param actions: int64 indices of phrases, ``(N,)``, or rows of token ids, ``(N, W)``.
    :param weights: weight of each action in the loss, float32 ``(N,)``.
    :param returns: return from each prompt on, scaled as the critic learns it, float32 ``(N,)``; NaN where it is not
        known.
    """

    keys: Sequence[bytes]
    actions: NDArray[np.int64]
    weights: NDArray[np.float32]
    returns: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.keys)

    def batches(self, size: int, order: NDArray[np.int64] | None = None) -> Iterator[Rows]:
        """Return the rows in minibatches.

        :param size: number of rows in a minibatch; the last one may have fewer.
        :param order: order of the rows, ``(N,)``. ``None``: as they are.
        """
        order = np.arange(len(self)) if order is None else order
        for start in range(0, len(order), size):
            yield self.take(order[start : start + size])

    def take(self, places: NDArray[np.int64]) -> Rows:
        """Return some of the rows.

        :param places: which rows, ``(B,)``.
        """
        keys = [self.keys[place] for place in places]
        return Rows(keys, self.actions[places], self.weights[places], self.returns[places])


@dataclass(frozen=True)
class Losses:
    """Hold the losses of a minibatch.

    :param actor: mean of weight times negative log-probability.
    :param critic: mean squared error of the values where returns are known; ``None`` where none is.
    :param entropy: mean entropy of the policy, in nats.
    """

    actor: th.Tensor
    critic: th.Tensor | None
    entropy: th.Tensor


@dataclass(frozen=True)
class Judgement:
    """Hold means over rows that a policy was judged on.

    :param actor: loss of the actor.
    :param critic: loss of the critic; ``None`` where no return is known.
    :param entropy: entropy of the policy, in nats.
    :param accuracy: share of rows whose phrase is the most likely one; ``None`` where the policy writes.
    """

    actor: float
    critic: float | None
    entropy: float
    accuracy: float | None


def observations(policy: LMActorCriticPolicy, keys: Sequence[bytes]) -> th.Tensor:
    """Return the rows of prompts, uint8 ``(B, max_bytes)``.

    :param policy: policy that reads them.
    :param keys: keys of the prompts; B of them.
    """
    space = policy.observation_space
    assert isinstance(space, TextSpace)
    rows = np.full((len(keys), space.max_bytes), PADDING_BYTE, dtype=np.uint8)
    for row, key in zip(rows, keys, strict=True):
        row[: len(key)] = np.frombuffer(key, dtype=np.uint8)
    return th.from_numpy(rows).to(policy.device)


def losses_of(policy: LMActorCriticPolicy, rows: Rows) -> Losses:
    """Compute the losses of a minibatch, with gradient where gradients are on.

    The actor's is the mean of -w · log π(a | prompt). Of a written answer, the log-probability is that of its own
    tokens alone, as PPO is given it: their mean or their sum, as ``ratio_level`` says.

    Where no return is known, the critic learns nothing, so its statistics of the prompts stay, too.

    :param policy: policy in training.
    :param rows: minibatch.
    """
    actions = th.from_numpy(rows.actions).to(policy.device)
    known = np.flatnonzero(~np.isnan(rows.returns))
    with nullcontext() if len(known) else policy.backbone.value_head.uncounted():
        values, log_prob, entropies = policy.evaluate_actions(observations(policy, rows.keys), actions)
    assert entropies is not None
    weights = th.from_numpy(rows.weights).to(log_prob.device)
    actor, entropy = -(weights * log_prob).mean(), entropies.mean()
    if not len(known):
        return Losses(actor, None, entropy)
    errors = values.flatten()[th.from_numpy(known).to(values.device)] - th.from_numpy(rows.returns[known]).to(values)
    return Losses(actor, errors.square().mean(), entropy)


def step(model: OnPolicyAlgorithm, loss: th.Tensor) -> None:
    """Take an optimizer step, as SB3's learners do.

    :param model: learner whose policy is trained.
    :param loss: loss of a minibatch.
    """
    policy = model.policy
    policy.optimizer.zero_grad()
    loss.backward()
    th.nn.utils.clip_grad_norm_(policy.parameters(), model.max_grad_norm)
    policy.optimizer.step()


def clone_epoch(
    model: OnPolicyAlgorithm, rows: Rows, batch_size: int, random: np.random.Generator, ent_coef: float = 0.0
) -> tuple[float, float | None]:
    """Go over all rows once, in random minibatches.

    :param model: learner whose policy is trained, within :func:`own_rate`.
    :param rows: what to learn.
    :param batch_size: number of rows in a minibatch.
    :param random: generator of the order.
    :param ent_coef: weight of the entropy, which is taken from the actor's loss.
    :return: means of the actor's and of the critic's loss; ``None`` where no return is known.
    """
    policy = model.policy
    assert isinstance(policy, LMActorCriticPolicy)
    actor, critic = [], []
    for batch in rows.batches(batch_size, random.permutation(len(rows))):
        losses = losses_of(policy, batch)
        parts = [losses.actor - ent_coef * losses.entropy] if policy.actor_learns else []
        if losses.critic is not None:
            parts.append(model.vf_coef * losses.critic)
            critic.append((float(losses.critic.detach()), int((~np.isnan(batch.returns)).sum())))
        actor.append((float(losses.actor.detach()), len(batch)))
        if parts:
            step(model, th.stack(parts).sum())
    return _mean(actor), _mean(critic) if critic else None


@th.no_grad()
def judge(policy: LMActorCriticPolicy, rows: Rows, batch_size: int) -> Judgement:
    """Compute the losses on rows, without learning from them.

    :param policy: policy in training.
    :param rows: rows, held out or learnt from.
    :param batch_size: number of rows at a time.
    """
    actor, critic, entropy, hits = [], [], [], 0
    chooses = isinstance(policy.actor, PhraseActor)
    for batch in rows.batches(batch_size):
        losses = losses_of(policy, batch)
        actor.append((float(losses.actor), len(batch)))
        entropy.append((float(losses.entropy), len(batch)))
        if losses.critic is not None:
            critic.append((float(losses.critic), int((~np.isnan(batch.returns)).sum())))
        if chooses:
            likely = policy.get_distribution(observations(policy, batch.keys)).mode().cpu().numpy()
            hits += int((likely == batch.actions).sum())
    accuracy = hits / len(rows) if chooses else None
    return Judgement(_mean(actor), _mean(critic) if critic else None, _mean(entropy), accuracy)


@contextmanager
def own_rate(policy: LMActorCriticPolicy, rate: float, *, as_before: bool = False) -> Iterator[None]:
    """Train with another learning rate, and put that of the learner back.

    What is measured of the learner's updates leaves these steps out.

    :param policy: policy that is trained within the ``with`` block.
    :param rate: learning rate of the actor. The critic's has the factor of the policy.
    :param as_before: whether a reference has the weight that it had in the learner's last update.
    """
    groups, training = policy.optimizer.param_groups, policy.training
    before = [group["lr"] for group in groups]
    policy.critic_only = False  # it is for one update of the learner, which is over
    policy.set_training_mode(True)
    reference = nullcontext() if policy.reference is None else policy.reference.between_updates(as_before=as_before)
    try:
        for group in groups:
            group["lr"] = rate
        with reference, unmeasured(policy):
            yield
    finally:
        for group, lr in zip(policy.optimizer.param_groups, before, strict=True):  # loading a state replaces groups
            group["lr"] = lr
        policy.set_training_mode(training)


def rate_now(model: OnPolicyAlgorithm) -> float:
    """Return the learning rate that the learner's schedule has now.

    :param model: learner.
    """
    return float(model.lr_schedule(model._current_progress_remaining))


def _mean(parts: Sequence[tuple[float, int]]) -> float:
    """Return the mean over rows, given means over minibatches and their sizes."""
    return sum(value * count for value, count in parts) / sum(count for _, count in parts)


class Snapshot:
    """Keep what a training changes: trainable weights, statistics of the value head, state of the optimizer.

    :param policy: policy whose state is copied.
    """

    def __init__(self, policy: LMActorCriticPolicy) -> None:
        self._tensors = {name: tensor.detach().clone() for name, tensor in _learnt(policy).items()}
        self._optimizer = copy.deepcopy(policy.optimizer.state_dict())

    @th.no_grad()
    def restore(self, policy: LMActorCriticPolicy) -> None:
        """Put the state back.

        :param policy: policy that it was copied from.
        """
        for name, tensor in _learnt(policy).items():
            tensor.copy_(self._tensors[name])
        policy.optimizer.load_state_dict(self._optimizer)
        policy.actor.forget()


def _learnt(policy: LMActorCriticPolicy) -> dict[str, th.Tensor]:
    weights = {name: weight for name, weight in policy.named_parameters() if weight.requires_grad}
    return {**weights, **{f"statistics.{name}": one for name, one in policy.backbone.value_head.named_buffers()}}

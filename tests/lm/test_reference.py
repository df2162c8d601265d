"""A reference that training does not forget: its gradient, and that it holds."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from helpers.lm_tools import (
    encode,
    gradients,
    largest_difference,
    naive_scores,
    scores_of,
)
from helpers.policy_tools import corridor, ppo
from helpers.references import (
    ACTIONS,
    PROMPTS,
    WARNS_OF_SIZES,
    move,
    naive_divergence,
    policy_away_from,
    without_adapter,
)
from helpers.written_answers import naive_tokens, some_answers, writer_of, writing_policy
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env
from torch.nn import functional

from lmpolicy import LMActorCriticPolicy, Reference
from lmpolicy.lm.trunk import TrunkForward
from lmpolicy.text.spaces import row_keys

pytestmark = pytest.mark.filterwarnings("ignore:the model will hardly ever choose")


# The gradient


@pytest.mark.parametrize(("micro_batch_size", "training"), [(None, False), (2, True)])
@pytest.mark.parametrize("direction", ["pi||ref", "ref||pi"])
@pytest.mark.parametrize("of", ["start", "base", "folder"])
@pytest.mark.parametrize("lora", [{"r": 4}, {"r": 4, "last_layers": 1}], ids=["all", "last-layers"])
def test_gradient_is_that_of_loss_and_divergence(
    llama: str, tmp_path: Path, lora: Any, of: str, direction: str, micro_batch_size: int | None, training: bool
) -> None:
    settings = {"lora": lora, "micro_batch_size": micro_batch_size, "score_normalization": "token"}
    policy, start = policy_away_from(llama, tmp_path, of, reference={"direction": direction}, **settings)
    policy.set_training_mode(training)
    assert isinstance(policy.actor.scorer.forward, TrunkForward) is ("last_layers" in lora)
    with th.no_grad():
        if of == "base":
            with without_adapter(policy):
                its = [naive_scores(policy, one, "token", 1.0) for one in PROMPTS]
        else:
            its = [naive_scores(start, one, "token", 1.0) for one in PROMPTS]

    def loss() -> th.Tensor:
        values, log_prob, entropy = policy.evaluate_actions(encode(PROMPTS), ACTIONS)
        weights = th.sin(1 + th.arange(len(PROMPTS)))
        return (weights * log_prob.exp()).mean() - 0.01 * entropy.mean() + values.square().mean()

    found = gradients(policy, loss())
    rows = [naive_scores(policy, one, "token", 1.0) for one in PROMPTS]
    divergences = th.stack([naive_divergence(mine, one, direction) for mine, one in zip(rows, its, strict=True)])
    with policy.reference.paused():
        expected = gradients(policy, loss() + 0.7 * divergences.mean())
        without = gradients(policy, loss())
    assert largest_difference(expected, without) > 0.01
    assert largest_difference(found, expected) <= 1e-6 * max(1.0, max(float(g.abs().max()) for g in expected.values()))
    mean = float(divergences.detach().mean())
    assert policy.reference.statistics()["train/kl_to_reference"] == pytest.approx(mean, rel=1e-4)
    again = gradients(policy, loss())  # from what is remembered of the reference
    assert largest_difference(again, found) == 0


class Recorder(PPO):
    """The unmodified PPO, with the minibatches it took and the gradients of its steps."""

    def record(self) -> tuple[list[Any], list[dict[str, th.Tensor]]]:
        batches: list[Any] = []
        steps: list[dict[str, th.Tensor]] = []
        original = self.rollout_buffer.get

        def get(batch_size: int | None = None) -> Any:
            for batch in original(batch_size):
                batches.append(batch)
                yield batch

        def step(*_: Any) -> None:
            named = self.policy.named_parameters()
            steps.append({name: weight.grad.clone() for name, weight in named if weight.grad is not None})

        self.rollout_buffer.get = get  # type: ignore[method-assign, assignment]
        self.policy.optimizer.step = step  # type: ignore[method-assign, assignment]
        return batches, steps


def written_out(learner: PPO, batch: Any, beta: float, divergence: Any) -> dict[str, th.Tensor]:
    """Gradient of PPO's loss + beta * KL on a minibatch, both by their formulas."""
    policy: Any = learner.policy
    with policy.reference.paused():
        values, log_prob, entropy = policy.evaluate_actions(batch.observations, batch.actions.long().flatten())
    advantages = batch.advantages
    if len(advantages) > 1:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratio = (log_prob - batch.old_log_prob).exp()
    clip = learner.clip_range(1.0)  # type: ignore[operator]
    policy_loss = -th.min(advantages * ratio, advantages * ratio.clamp(1 - clip, 1 + clip)).mean()
    loss = policy_loss - learner.ent_coef * entropy.mean()
    loss = loss + learner.vf_coef * functional.mse_loss(batch.returns, values.flatten())
    return gradients(policy, loss + beta * divergence(batch.observations).mean())


@pytest.mark.filterwarnings(WARNS_OF_SIZES)
@pytest.mark.parametrize("micro_batch_size", [None, 1])
def test_a_step_of_the_unmodified_ppo(llama: str, micro_batch_size: int | None) -> None:
    kwargs = {
        "model": llama,
        "lora": {"r": 4},
        "score_normalization": "token",
        "micro_batch_size": micro_batch_size,
        "reference": Reference(beta=0.7, of="start"),
    }
    options: dict[str, Any] = {"n_steps": 5, "batch_size": 4, "n_epochs": 2, "seed": 0, "device": "cpu"}
    env = make_vec_env(corridor, n_envs=2, seed=0)  # 10 rows: minibatches of 4, 4 and 2, with rows that come again
    learner = Recorder(
        LMActorCriticPolicy, env, policy_kwargs=kwargs, max_grad_norm=1e9, ent_coef=0.01, learning_rate=1e-3, **options
    )
    policy: Any = learner.policy
    policy.set_reference()
    start = copy.deepcopy(policy)
    move(policy, size=0.1)
    batches, steps = learner.record()
    learner.learn(10)
    assert [len(batch.actions) for batch in batches] == [4, 4, 2, 4, 4, 2]

    def divergence(rows: th.Tensor) -> th.Tensor:
        mine, (its, _) = scores_of(policy, rows)[0], scores_of(start, rows)
        legal = mine > -1e20
        log_p, log_q = mine.log_softmax(-1), its.detach().log_softmax(-1)
        return (log_p.exp() * (log_p - log_q)).masked_fill(~legal, 0).sum(-1)

    shares = []
    for batch, step in zip(batches, steps, strict=True):
        expected = written_out(learner, batch, 0.7, divergence)
        largest = max(float(gradient.abs().max()) for gradient in expected.values())
        assert largest_difference(step, expected) <= 1e-6 * max(1.0, largest)
        shares.append(largest_difference(step, written_out(learner, batch, 0.0, divergence)))
    assert max(shares) > 1e-3  # a minibatch may have prompts with one legal phrase alone


def test_what_ppo_is_given_stays_as_it_is(llama: str, tmp_path: Path) -> None:
    policy, _ = policy_away_from(llama, tmp_path, "start")
    found = policy.evaluate_actions(encode(PROMPTS), ACTIONS)
    with policy.reference.paused():
        plain = policy.evaluate_actions(encode(PROMPTS), ACTIONS)
    assert all(th.equal(one, other) for one, other in zip(found, plain, strict=True))
    model = ppo(llama, corridor(), {"reference": {"beta": 5.0, "of": "base"}}, learning_rate=0.0)
    model.learn(16)
    assert model.logger.name_to_value["train/approx_kl"] == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("estimate", ["k1", "k2", "k3"])
@pytest.mark.parametrize(("n_phrases", "ratio_level"), [(0, "mean"), (0, "sum"), (4, "mean"), (4, "sum")])
def test_written_answers(llama: str, estimate: str, n_phrases: int, ratio_level: str) -> None:
    reference = {"beta": 0.7, "estimate": estimate}
    policy: Any = writing_policy(llama, n_phrases, ratio_level=ratio_level, reference=reference, micro_batch_size=3)
    policy.set_reference()
    start = copy.deepcopy(policy)
    move(policy)
    rows = some_answers(policy, PROMPTS)
    with th.no_grad():
        policy(encode(PROMPTS[:1]))

    def divergence(row: np.ndarray, number: int) -> th.Tensor:
        """Token by token, from plain forwards."""
        parts = []
        ids, _ = writer_of(policy).space.split(row)
        (context,) = policy.backbone.renderer.prompt_ids([PROMPTS[number]])
        mine = naive_tokens(policy, context, ids)[0]
        its = naive_tokens(start, context, ids)[0].detach()
        for log_p, log_q in zip(mine, its, strict=True):
            ratio = log_q - log_p
            parts.append({"k1": -ratio, "k2": ratio**2 / 2, "k3": ratio.exp() - 1 - ratio}[estimate])
        if n_phrases:
            queries = writer_of(policy).queries
            (key,) = row_keys(encode([PROMPTS[number]]).numpy())
            scores = [one.actor.scorer(queries.answers([key], [ids])).phrases[0] for one in (policy, start)]
            legal = len(PROMPTS[number].actions)
            parts.append(naive_divergence(scores[0][:legal], scores[1][:legal].detach()))
        return th.stack(parts).mean() if ratio_level == "mean" else th.stack(parts).sum()

    def loss() -> th.Tensor:
        _, log_prob, entropy = policy.evaluate_actions(encode(PROMPTS), th.from_numpy(rows).float())
        return (th.sin(1 + th.arange(len(rows))) * log_prob).mean() - 0.01 * entropy.mean()

    found = gradients(policy, loss())
    with policy.reference.paused():
        plain = loss()
    divergences = th.stack([divergence(row, number) for number, row in enumerate(rows)])
    expected = gradients(policy, plain + 0.7 * divergences.mean())
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    assert largest_difference(found, expected) <= 1e-5 * max(1.0, largest)  # of token by token
    mean = float(divergences.detach().mean())
    assert policy.reference.statistics()["train/kl_to_reference"] == pytest.approx(mean, rel=1e-4)


def test_a2c_is_held_as_well(llama: str) -> None:
    settings: dict[str, Any] = {"model": llama, "lora": {"r": 4}, "reference": {"beta": 1.0}}
    options: dict[str, Any] = {"n_steps": 16, "seed": 0, "device": "cpu", "learning_rate": 1e-2}
    model: Any = A2C(LMActorCriticPolicy, corridor(), policy_kwargs=settings, **options).learn(96)
    assert model.policy.reference.statistics()["train/kl_to_reference"] > 0


@pytest.mark.parametrize("direction", ["pi||ref", "ref||pi"])
def test_it_holds(llama: str, direction: str) -> None:
    found = []
    for beta in (0.0, 3.0):
        reference = {"beta": beta, "direction": direction}
        model: Any = ppo(llama, corridor(), {"reference": reference}, learning_rate=5e-3, n_steps=32, n_epochs=4)
        model.learn(96)
        found.append(model.policy.reference.statistics()["train/kl_to_reference"])
    assert 0 < found[1] < found[0] / 2

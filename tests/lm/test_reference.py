"""A reference that training does not forget: its gradient, what it costs, and what must not notice it."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from helpers.lm_tools import (
    UNSHARED,
    count_rows,
    encode,
    gradients,
    largest_difference,
    make_policy,
    naive_scores,
    scores_of,
)
from helpers.policy_tools import corridor, ppo
from helpers.references import (
    ACTIONS,
    OF_TWO,
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
from stable_baselines3.common.logger import configure
from torch.nn import functional

from lmpolicy import CriticWarmup, LMActorCriticPolicy, Reference, WatchLearning
from lmpolicy.lm.backbone import WeightVersion
from lmpolicy.lm.prefixes import PrefixMemory
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
    options: dict[str, Any] = {"n_steps": 4, "seed": 0, "device": "cpu", "learning_rate": 1e-2}
    model: Any = A2C(LMActorCriticPolicy, corridor(), policy_kwargs=settings, **options).learn(24)
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


# What it costs, and what does not notice it


def test_each_row_is_run_once_in_a_training(llama: str, tmp_path: Path) -> None:
    policy, _ = policy_away_from(llama, tmp_path, "base")
    rows = count_rows(policy)
    distinct = len(set(map(repr, PROMPTS)))
    _, log_prob, _ = policy.evaluate_actions(encode(PROMPTS), ACTIONS)
    assert sum(rows) == 2 * distinct  # the policy and the reference
    for _ in range(2):  # later epochs, also after a step
        log_prob.sum().backward()
        policy.optimizer.step()
        rows.clear()
        _, log_prob, _ = policy.evaluate_actions(encode(PROMPTS), ACTIONS)
        assert sum(rows) == distinct
    rows.clear()
    policy.evaluate_actions(encode([*PROMPTS[:2], UNSHARED[0]]), ACTIONS[:3])
    assert sum(rows) == 3 + 1  # only the new one


def test_no_more_bytes_than_allowed(llama: str, tmp_path: Path) -> None:
    policy, _ = policy_away_from(llama, tmp_path, "start", cache_bytes=4000)
    found = gradients(policy, policy.evaluate_actions(encode(PROMPTS), ACTIONS)[1].sum())
    again = gradients(policy, policy.evaluate_actions(encode(PROMPTS[::-1]), ACTIONS.flip(0))[1].sum())
    assert policy.reference.memory in policy.actor.caches()
    assert policy.reference.memory.n_bytes <= 4000 // 6
    assert policy.reference.memory.evicted > 0
    roomy, _ = policy_away_from(llama, tmp_path, "start")
    wanted = gradients(roomy, roomy.evaluate_actions(encode(PROMPTS), ACTIONS)[1].sum())
    assert largest_difference(found, wanted) == 0
    assert largest_difference(again, wanted) <= 1e-5 * max(float(one.abs().max()) for one in wanted.values())


@pytest.mark.parametrize("lora", [{"r": 4}, {"r": 4, "last_layers": 1}], ids=["all", "last-layers"])
@pytest.mark.parametrize("of", ["start", "base"])
def test_rollout_and_weights_do_not_notice(llama: str, tmp_path: Path, of: str, lora: Any) -> None:
    policy, _ = policy_away_from(llama, tmp_path, of, lora=lora)
    next(policy.backbone.lm.parameters()).requires_grad_(False)
    names = [name for name, weight in policy.named_parameters() if ".lora_A." in name]
    flags = {name: weight.requires_grad for name, weight in policy.named_parameters()}
    watched, versions = WeightVersion(policy.backbone), [weight._version for weight in policy.parameters()]
    watched.changed()
    with th.no_grad():
        before = policy.get_distribution(encode(PROMPTS)).distribution.logits
        prefixes = [one.kept for one in policy.actor.scorer.caches() if isinstance(one, PrefixMemory)]
        rows = count_rows(policy)
    policy.evaluate_actions(encode(PROMPTS), ACTIONS)
    assert names
    assert flags == {name: weight.requires_grad for name, weight in policy.named_parameters()}
    assert not watched.changed()
    assert versions == [weight._version for weight in policy.parameters()]
    kept = [one.kept for one in policy.actor.scorer.caches() if isinstance(one, PrefixMemory)]
    assert all(one is other for one, other in zip(kept, prefixes, strict=True))
    rows.clear()
    with th.no_grad():
        assert th.equal(policy.get_distribution(encode(PROMPTS)).distribution.logits, before)
    assert not rows  # answered from the rollout memory
    policy.actor.forget()
    with th.no_grad():  # the prefixes that were run with other weights were not kept
        th.testing.assert_close(policy.get_distribution(encode(PROMPTS)).distribution.logits, before)


def test_what_is_frozen_stays_frozen(llama: str, tmp_path: Path) -> None:
    policy, _ = policy_away_from(llama, tmp_path, "base")
    name, weight = next((n, w) for n, w in policy.named_parameters() if "lora_A" in n)
    weight.requires_grad_(False)  # the user's own choice, which disable_adapter of PEFT would forget
    policy.evaluate_actions(encode(PROMPTS), ACTIONS)
    assert not dict(policy.named_parameters())[name].requires_grad


def test_nobody_else_sees_the_second_adapter(llama: str, tmp_path: Path) -> None:
    plain, held = make_policy(llama), make_policy(llama, reference={"beta": 1.0})
    assert [n for n, _ in plain.named_parameters()] == [n for n, _ in held.named_parameters()]
    optimizers = [[len(group["params"]) for group in one.optimizer.param_groups] for one in (plain, held)]
    assert optimizers[0] == optimizers[1]
    assert plain.backbone.fingerprint == held.backbone.fingerprint
    assert not any("reference" in name for name in plain.state_dict())
    for number, one in enumerate((plain, held)):
        one.save_adapter(tmp_path / f"adapter{number}")
        one.export(tmp_path / f"model{number}")
    for kind in ("adapter", "model"):
        listed = [sorted(path.name for path in (tmp_path / f"{kind}{n}").rglob("*")) for n in (0, 1)]
        assert listed[0] == listed[1]
    weights = [(tmp_path / f"adapter{n}" / "adapter_model.safetensors").read_bytes() for n in (0, 1)]
    assert weights[0] == weights[1]
    assert th.equal(scores_of(plain, encode(PROMPTS))[0], scores_of(held, encode(PROMPTS))[0])


@pytest.mark.parametrize("way", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
@pytest.mark.parametrize("of", ["start", "base"])
def test_copies(llama: str, tmp_path: Path, of: str, way: Any) -> None:
    policy, _ = policy_away_from(llama, tmp_path, of)
    found = gradients(policy, policy.evaluate_actions(encode(PROMPTS), ACTIONS)[1].sum())
    copied = way(policy)
    move(policy, seed=1)
    if of == "start":
        policy.set_reference()
    same = gradients(copied, copied.evaluate_actions(encode(PROMPTS), ACTIONS)[1].sum())
    assert largest_difference(found, same) == 0
    assert copied.reference.memory in copied.actor.caches()


# When it acts


def test_start_is_where_the_training_begins(llama: str) -> None:
    model: Any = ppo(llama, corridor(), {"reference": {"beta": 0.1}}, learning_rate=1e-2)
    policy = model.policy
    for _ in range(3):  # a warm start: nothing holds it, and it is not the reference yet
        _, log_prob, _ = policy.evaluate_actions(encode(OF_TWO), th.tensor([0, 1]))
        policy.optimizer.zero_grad()
        (-log_prob.mean()).backward()
        policy.optimizer.step()
    assert not policy.reference.weights.taken
    assert policy.reference.statistics() == {}
    warm = {name: weight.detach().clone() for name, weight in policy.named_parameters() if "lora" in name}
    model.learn(16)
    assert policy.reference.weights.taken
    held = {name: tensor.clone() for name, tensor in policy.reference.weights.named_buffers() if name != "taken"}
    expected = {name.removeprefix("backbone.lm.").replace(".", "/"): weight for name, weight in warm.items()}
    assert held.keys() == expected.keys()
    assert all(th.equal(held[name], weight) for name, weight in expected.items())
    model.learn(16, reset_num_timesteps=False)  # a training that goes on keeps its reference
    assert all(th.equal(held[name], policy.reference.weights.get_buffer(name)) for name in held)
    policy.set_reference()
    assert not all(th.equal(held[name], policy.reference.weights.get_buffer(name)) for name in held)


def test_not_while_only_the_critic_learns(llama: str) -> None:
    model: Any = ppo(llama, corridor(), {"reference": {"beta": 0.1, "of": "base"}})
    rows = count_rows(model.policy)
    model.learn(8, callback=CriticWarmup(1))
    assert model.policy.reference.statistics() == {}
    assert len(model.policy.reference.memory) == 0
    assert rows
    model.learn(16, callback=CriticWarmup(1))
    assert model.policy.reference.statistics()["train/kl_to_reference"] >= -1e-6


def test_paused_ends_with_an_error(llama: str, tmp_path: Path) -> None:
    policy, _ = policy_away_from(llama, tmp_path, "base")

    def interrupted() -> None:
        with policy.reference.paused():
            assert not policy.reference.active
            raise KeyError

    with pytest.raises(KeyError):
        interrupted()
    assert policy.reference.active


def test_mean_over_the_rows_of_an_update_is_logged(llama: str, tmp_path: Path) -> None:
    model: Any = ppo(llama, make_vec_env(corridor, n_envs=1), {"reference": {"beta": 0.0, "of": "base"}}, n_epochs=1)
    move(model.policy)
    model.set_logger(configure(str(tmp_path), ["csv"]))
    rows: list[th.Tensor] = []
    original = model.policy.evaluate_actions

    def evaluate(obs: th.Tensor, actions: th.Tensor) -> Any:
        rows.append(obs)
        return original(obs, actions)

    model.policy.evaluate_actions = evaluate
    model.policy.optimizer.step = lambda: None
    model.learn(8, callback=WatchLearning(every=0))
    with th.no_grad(), without_adapter(model.policy):
        its, _ = scores_of(model.policy, th.cat(rows))
    with th.no_grad():
        mine, _ = scores_of(model.policy, th.cat(rows))
    log_p, log_q = mine.log_softmax(-1), its.log_softmax(-1)
    expected = (log_p.exp() * (log_p - log_q)).sum(-1).mean()
    assert model.logger.name_to_value["train/kl_to_reference"] == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize(("size", "factor"), [(0.5, 2.0), (0.0, 0.5)])
def test_beta_is_adapted_to_a_target(llama: str, tmp_path: Path, size: float, factor: float) -> None:
    policy: Any = make_policy(llama, reference={"beta": 0.3, "target": 0.02})
    policy.set_reference()
    move(policy, size=size)
    with th.no_grad():
        policy(encode(PROMPTS))
        policy.evaluate_actions(encode(PROMPTS), ACTIONS)
        policy(encode(PROMPTS))
    assert policy.reference.beta == pytest.approx(0.3)  # there was no update
    policy.evaluate_actions(encode(PROMPTS), ACTIONS)
    assert policy.reference.beta == pytest.approx(0.3)
    with th.no_grad():
        policy(encode(PROMPTS))
        policy(encode(PROMPTS))
    assert policy.reference.beta == pytest.approx(0.3 * factor)
    assert policy.reference.statistics()["train/reference_beta"] == pytest.approx(0.3 * factor)
    other: Any = make_policy(llama, seed=1, reference={"beta": 0.3, "target": 0.02})
    other.load_state_dict(policy.state_dict())
    assert other.reference.beta == pytest.approx(0.3 * factor)


def test_beta_on_target_stays(llama: str) -> None:
    policy: Any = make_policy(llama, reference={"beta": 0.3, "target": 0.02})
    policy.set_reference()
    move(policy, size=0.1)
    with th.no_grad():
        policy(encode(PROMPTS))
    policy.evaluate_actions(encode(PROMPTS), ACTIONS)
    mean = policy.reference.statistics()["train/kl_to_reference"]
    for target, factor in ((mean / 1.4, 1.0), (mean * 1.4, 1.0), (mean / 1.6, 2.0), (mean * 1.6, 0.5)):
        object.__setattr__(policy.reference.settings, "target", target)
        policy.reference.adapted.fill_(0.3)
        policy.evaluate_actions(encode(PROMPTS), ACTIONS)
        with th.no_grad():
            policy(encode(PROMPTS[:1]))
        assert policy.reference.beta == pytest.approx(0.3 * factor)

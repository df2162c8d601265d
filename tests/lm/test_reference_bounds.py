"""What a reference costs, when it acts, and what does not notice it."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch as th
from helpers.lm_tools import (
    UNSHARED,
    count_rows,
    encode,
    gradients,
    largest_difference,
    make_policy,
    scores_of,
)
from helpers.policy_tools import corridor, ppo
from helpers.references import (
    ACTIONS,
    OF_TWO,
    PROMPTS,
    move,
    policy_away_from,
    without_adapter,
)
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure

from lmpolicy import CriticWarmup, WatchLearning
from lmpolicy.lm.backbone import WeightVersion
from lmpolicy.lm.prefixes import PrefixMemory

pytestmark = pytest.mark.filterwarnings("ignore:the model will hardly ever choose")


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
    early: Any = make_policy(llama, seed=1, reference={"beta": 0.3, "target": 0.02})
    early.load_state_dict(policy.state_dict())  # saved after an update, it begins as the next rollout will
    assert early.reference.beta == pytest.approx(0.3 * factor)
    assert early.reference.statistics() == {
        **policy.reference.statistics(),
        "train/reference_beta": pytest.approx(0.3 * factor),
    }
    assert policy.reference.beta == pytest.approx(0.3), "and here, the update is not over"
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

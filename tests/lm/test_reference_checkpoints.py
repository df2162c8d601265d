"""Checkpoints hold the reference, and settings that cannot be held are refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch as th
from helpers.lm_tools import (
    encode,
    gradients,
    largest_difference,
    make_policy,
    scores_of,
)
from helpers.policy_tools import corridor, ppo
from helpers.references import (
    OF_TWO,
    PROMPTS,
)
from helpers.written_answers import writing_policy
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import lmpolicy
from lmpolicy import Reference

pytestmark = pytest.mark.filterwarnings("ignore:the model will hardly ever choose")


# Checkpoints


def trained(llama: str, reference: Any, env: gym.Env | None = None, **settings: Any) -> Any:
    # The corridor's rewards are all 0: without the entropy bonus, rounding alone would say whether anything moves.
    model = ppo(llama, env or corridor(), {"reference": reference, **settings}, learning_rate=1e-2, ent_coef=0.1)
    return model.learn(16)


@pytest.mark.parametrize("of", ["start", "base"])
def test_training_goes_on_as_if_it_had_not_stopped(llama: str, tmp_path: Path, of: str) -> None:
    model = trained(llama, Reference(beta=0.5, of=of))
    model.save(tmp_path / "model")
    before = model.policy.reference.last.clone()
    model.policy.reference.acted()  # what is loaded begins where the next rollout does
    assert not th.equal(model.policy.reference.last, before)
    for loaded in (
        PPO.load(tmp_path / "model", env=corridor(), device="cpu"),
        lmpolicy.load(tmp_path / "model", env=corridor(), device="cpu", model=llama),
    ):
        policy: Any = loaded.policy
        assert policy.settings.reference == Reference(beta=0.5, of=of)
        for (name, mine), (_, its) in zip(
            policy.reference.named_buffers(), model.policy.reference.named_buffers(), strict=True
        ):
            assert th.equal(mine, its), name
        for one in (policy, model.policy):
            with th.no_grad():
                one(encode(OF_TWO))
        first, second = (
            gradients(one, one.evaluate_actions(encode(OF_TWO), th.tensor([0, 1]))[1].sum())
            for one in (policy, model.policy)
        )
        assert largest_difference(first, second) <= 1e-6


def test_run_that_is_resumed(llama: str, tmp_path: Path) -> None:
    runs = []
    for stops in (False, True):
        folder = tmp_path / str(stops)
        env = make_vec_env(corridor, n_envs=2, seed=3)
        model: Any = ppo(llama, env, {"reference": {"beta": 0.5}}, learning_rate=1e-2)
        if stops:
            model.learn(32, callback=lmpolicy.Checkpoints(folder, every=1))
            model = lmpolicy.resume(folder, make_vec_env(corridor, n_envs=2, seed=3), device="cpu")
            model.learn(32, reset_num_timesteps=False)
        else:
            model.learn(32).learn(32, reset_num_timesteps=False)
        runs.append({name: tensor.clone() for name, tensor in model.policy.reference.named_buffers()})
    assert all(th.equal(runs[0][name], runs[1][name]) for name in runs[0])


def test_folder_of_the_reference_is_gone(llama: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    start = make_policy(llama)
    start.save_adapter(tmp_path / "adapter")
    model = trained(llama, {"beta": 0.5, "of": str(tmp_path / "adapter")})
    model.save(tmp_path / "model")
    model.policy.reference.acted()  # what is loaded begins where the next rollout does
    (tmp_path / "adapter").rename(tmp_path / "elsewhere")
    for loaded in (
        PPO.load(tmp_path / "model", env=corridor(), device="cpu"),
        lmpolicy.load(tmp_path / "model", env=corridor(), device="cpu", model=llama),
    ):
        loaded.learn(8)
        for name, tensor in model.policy.reference.named_buffers():
            assert th.equal(tensor, loaded.policy.get_buffer(f"reference.{name}")), name
    caplog.clear()
    fresh = ppo(llama, corridor(), {"reference": {"beta": 0.5, "of": str(tmp_path / "adapter")}})
    assert "adapter" in caplog.text
    with pytest.raises(OSError, match="could not be read"):
        fresh.learn(8)


@pytest.mark.parametrize("of", ["base", "start", "folder", None])
def test_a_reference_that_is_named_at_loading_takes_the_place_of_the_saved_one(
    llama: str, tmp_path: Path, of: str | None
) -> None:
    named = make_policy(llama, seed=5)
    for seed, name in ((5, "named"), (6, "folder")):
        make_policy(llama, seed=seed).save_adapter(tmp_path / name)
    saved = None if of is None else {"of": str(tmp_path / of) if of == "folder" else of}
    trained(llama, saved).save(tmp_path / "model")
    kwargs = {"reference": {"beta": 0.5, "of": str(tmp_path / "named")}}
    loaded = lmpolicy.load(tmp_path / "model", env=corridor(), device="cpu", model=llama, policy_kwargs=kwargs).learn(8)
    for name, weight in named.backbone.lm.named_parameters():
        if weight.requires_grad:
            assert th.equal(loaded.policy.reference.weights.get_buffer(name.replace(".", "/")), weight), name
    loaded.policy.set_reference()
    again: Any = make_policy(llama, seed=5, reference={"of": "start"})
    again.load_state_dict(loaded.policy.state_dict())
    assert again.reference.weights.taken


def test_loading_ends_the_update_of_before(llama: str) -> None:
    policy = trained(llama, {"beta": 0.1, "target": 1e-9}).policy
    state = policy.state_dict()
    saved = float(state["reference.adapted"])
    assert saved != policy.reference.beta, "what is saved is adapted by the last update"
    policy.load_state_dict(state)
    with th.no_grad():
        policy(encode(OF_TWO))
    assert policy.reference.beta == saved, "and not once more"


def test_checkpoints_of_policies_with_and_without(llama: str) -> None:
    held, plain = make_policy(llama, reference={"beta": 1.0}), make_policy(llama, seed=1)
    held.set_reference()
    for mine, its in ((held, plain), (plain, held)):
        fresh: Any = make_policy(llama, seed=2, reference=mine.settings.reference)
        fresh.load_state_dict(its.state_dict())
        assert th.equal(scores_of(fresh, encode(PROMPTS))[0], scores_of(its, encode(PROMPTS))[0])
        if fresh.reference is not None:
            assert not fresh.reference.weights.taken  # so that its training begins from there
    other = make_policy(llama, reference={"beta": 1.0, "of": "base"})
    other.load_state_dict(held.state_dict())


# Bad input


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"beta": -0.1}, "beta of the reference must be a number that is not negative"),
        ({"beta": float("nan")}, "beta of the reference"),
        ({"beta": True}, "beta of the reference"),
        ({"of": ""}, "base"),
        ({"of": None}, "base"),
        ({"direction": "forward"}, "pi||ref"),
        ({"estimate": "k4"}, "k3"),
        ({"target": 0}, "target=None leaves beta"),
        ({"beta": 0, "target": 0.1}, "target=None leaves beta"),
    ],
)
def test_values_out_of_range(reference: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Reference(**reference)


@pytest.mark.parametrize("reference", ["start", 0.1, {"beta": 0.1, "off": "base"}])
def test_settings_that_are_none(llama: str, reference: Any) -> None:
    with pytest.raises(TypeError, match="reference"):
        make_policy(llama, reference=reference)


@pytest.mark.parametrize("of", ["base", "start"])
def test_nothing_to_switch_off_or_keep(llama: str, of: str) -> None:
    with pytest.raises(ValueError, match=re.escape('train an adapter (lora={"r": 16')):
        make_policy(llama, lora=None, reference={"of": of})
    with pytest.raises(ValueError, match="never leaves its reference"):
        make_policy(llama, lora="frozen", reference={"of": of})


def test_adapters_that_change_the_base(llama: str) -> None:
    lora = {"r": 4, "bias": "lora_only"}
    with pytest.raises(ValueError, match=r'of="start"'):
        make_policy(llama, lora=lora, reference={"of": "base"})
    make_policy(llama, lora=lora, reference={"of": "start"}).set_reference()


@pytest.mark.parametrize(
    ("lora", "named"),
    [
        ({"r": 8}, "r=8, not 4"),
        ({"r": 4, "lora_alpha": 99}, "lora_alpha=99, not 8"),
        ({"r": 4, "alpha_pattern": {"q_proj": 99}}, "alpha_pattern={'q_proj': 99}, not {}"),
        ({"r": 4, "target_modules": ["q_proj"]}, ""),
    ],
)
def test_folder_with_another_adapter(llama: str, tmp_path: Path, lora: Any, named: str) -> None:
    make_policy(llama, lora=lora).save_adapter(tmp_path / "adapter")
    with pytest.raises(ValueError, match=f"has other settings than the policy's own.*{re.escape(named)}"):
        make_policy(llama, reference={"of": tmp_path / "adapter"})


@pytest.mark.parametrize("lora", [{"r": 4, "bias": "all"}, {"r": 4, "kasa_config": {}}])
def test_adapters_that_change_the_base_have_no_base_to_switch_to(llama: str, lora: Any) -> None:
    with pytest.raises(ValueError, match=r'changes the base model itself, .* take a reference of="start"'):
        make_policy(llama, lora=lora, reference={"of": "base"})


def test_reading_a_folder_leaves_the_policy_as_it_is(llama: str, tmp_path: Path) -> None:
    make_policy(llama, seed=5).save_adapter(tmp_path / "adapter")
    policies = [make_policy(llama), make_policy(llama, reference={"of": tmp_path / "adapter"})]
    assert th.equal(*(scores_of(one, encode(PROMPTS))[0] for one in policies))


def test_answers_of_the_reference_were_not_written(llama: str) -> None:
    with pytest.raises(ValueError, match=r"direction='pi\|\|ref'"):
        writing_policy(llama, reference={"direction": "ref||pi"})


def test_nothing_to_set(llama: str) -> None:
    with pytest.raises(ValueError, match="make it with policy_kwargs="):
        make_policy(llama).set_reference()
    with pytest.raises(ValueError, match="never changes"):
        make_policy(llama, reference={"of": "base"}).set_reference()

"""A real instruct model, SmolLM2-135M-Instruct: exact scores, a start policy that can explore, and a step that learns.

What holds for tiny random models in the other tests is held here for 30 layers and a vocabulary of 49 152.
"""

from __future__ import annotations

import time
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from helpers.lm_tools import AS_THE_LM_SAYS, naive_batch, scored_batch
from stable_baselines3.common.utils import obs_as_tensor
from transformers import AutoModelForCausalLM, GgufConfig

from lmpolicy import LMActorCriticPolicy, Prompt, TextObservationWrapper, models
from lmpolicy.envs import FrozenLake
from lmpolicy.lm.forward import PackedForward
from lmpolicy.lm.plain import PlainForward
from lmpolicy.lm.trunk import TrunkForward

ROW_BYTES = 2048
HOLES_AND_GOAL = (5, 7, 11, 12, 15)
START = {"left": 0.35, "down": 0.40, "right": 0.15, "up": 0.10}
"""Mean probability of each move over the tiles that one can stand on, as measured once."""
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
DEMONSTRATED = 2
"""To the right, which the untrained model finds unlikely."""


def lake(**options: Any) -> TextObservationWrapper:
    return TextObservationWrapper(gym.make("FrozenLake-v1", is_slippery=False), FrozenLake(), **options)


def tiles(env: TextObservationWrapper) -> th.Tensor:
    """What the model reads on each tile that one can stand on, ``(11, bytes)``."""
    env.reset(seed=0)
    return th.from_numpy(np.stack([env.encode(tile) for tile in range(16) if tile not in HOLES_AND_GOAL]))


def policy_for(model: str, env: TextObservationWrapper, **settings: Any) -> LMActorCriticPolicy:
    """A policy with adapters in all layers, and else the settings of the model's entry, in float32 on any machine."""
    entry = models.find("smollm2-135m-instruct")
    assert entry is not None
    settings = {**entry.settings, **AS_THE_LM_SAYS, "lora": models.PRETRAINED["lora"], "dtype": "float32", **settings}
    th.manual_seed(0)
    return LMActorCriticPolicy(env.observation_space, env.action_space, lambda _: 5e-4, model=model, **settings)


@pytest.fixture(scope="module")
def policy(real_model: str) -> LMActorCriticPolicy:
    """The untrained policy; not to be changed."""
    return policy_for(real_model, lake())


def test_it_is_the_model_that_the_entry_describes(policy: LMActorCriticPolicy) -> None:
    entry, lm = models.find("smollm2-135m-instruct"), policy.backbone.lm
    assert entry is not None
    assert policy.backbone.context_length == entry.context
    assert sum(weight.numel() for name, weight in lm.named_parameters() if "lora_" not in name) == 134_515_008
    assert len(lm.get_base_model().model.layers) == 30  # type: ignore[operator, union-attr]
    assert policy.backbone.renderer.has_template
    assert policy.backbone.end_ids() == (policy.backbone.tokenizer.convert_tokens_to_ids("<|im_end|>"),)


def test_it_knows_english(policy: LMActorCriticPolicy) -> None:
    question = Prompt((("user", "What is the capital of France?"),), ("London", "Paris", "Berlin", "Rome"))
    log_probs, _ = scored_batch(policy, [question], ROW_BYTES)
    assert log_probs.exp()[0, 1] > 0.5


def test_scores_and_values_equal_the_naive_ones(real_model: str) -> None:
    """In float32, rounding of 30 layers leaves differences of about 1e-5; a wrong mask or position leaves 0.1."""
    env = lake()
    policy = policy_for(real_model, env)
    with th.no_grad():
        for name, weight in policy.named_parameters():
            if "lora_B" in name or "value_head" in name:
                weight.normal_(std=0.02)
    prompts = [Prompt.from_json(env.observation_space.decode(row.numpy())) for row in tiles(env)[[0, 4]]]
    prompts.append(Prompt((("user", "A door, and a key."),), ("open the door", "pick up the key", "wait", "go")))
    with th.no_grad():
        log_probs, values = scored_batch(policy, prompts, ROW_BYTES)
        expected, expected_values = naive_batch(policy, prompts)
    assert isinstance(policy.actor.scorer.forward, PackedForward)
    th.testing.assert_close(log_probs, expected, rtol=0, atol=5e-5)
    th.testing.assert_close(values, expected_values, rtol=0, atol=5e-6)


def test_remembered_trunk_equals_the_plain_way(real_model: str) -> None:
    """Scores, values and gradients of the last layers, from what is remembered of those below, and run as a whole."""
    rows, found = tiles(lake())[[0, 4, 9]], []
    for last in ({"r": 4, "last_layers": 3}, {"r": 4, "layers_to_transform": [27, 28, 29]}):
        modules = {} if "last_layers" in last else {"target_modules": MODULES}
        policy = policy_for(real_model, lake(), lora={**last, **modules}, value_gradient=True).train()
        with th.no_grad():
            for name, weight in policy.named_parameters():
                if "lora_B" in name:
                    weight.fill_(0.01)
        forward = policy.actor.scorer.forward
        assert isinstance(forward, TrunkForward)
        if "last_layers" not in last:
            policy.actor.scorer._forward = PlainForward(policy.backbone.lm, keeps=True)
        for _ in range(2):  # the second time from memory
            values, log_probs, entropy = policy.evaluate_actions(rows, th.tensor([0, 1, 2]))
            (log_probs.sum() + values.square().sum() + entropy.sum()).backward()  # type: ignore[union-attr]
        learning = [weight for weight in policy.backbone.lm.parameters() if weight.requires_grad]
        gradients = th.cat([weight.grad.flatten() for weight in learning])
        found.append((values.detach(), log_probs.detach(), gradients))
    for one, other in zip(*found, strict=True):
        th.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * float(other.abs().max()))


def test_start_policy_leaves_room_to_explore(policy: LMActorCriticPolicy) -> None:
    env = lake()
    rows = tiles(env)
    with th.no_grad():
        found: Any = policy.get_distribution(rows)
    probabilities = found.distribution.probs.mean(0)  # (4,)
    named = dict(zip(env.prompt.actions, probabilities.tolist(), strict=True))
    assert len(named) == len(START)
    for move, expected in START.items():
        (share,) = (share for phrase, share in named.items() if move in phrase)
        assert share == pytest.approx(expected, abs=0.04), named


def test_rounding_of_the_converted_weights_hardly_matters(policy: LMActorCriticPolicy, real_model: str) -> None:
    """The copy is in bfloat16, and takes half the room of the float32 to which 4-bit weights are unpacked."""
    entry = models.find("smollm2-135m-instruct")
    assert entry is not None
    assert entry.package is not None
    file = Path(str(distribution(entry.package.distribution).locate_file(entry.package.path)))
    exact: Any = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=th.float32, quantization_config=GgufConfig(dequantize=True)
    )
    weights = {name.replace("_proj.weight", "_proj.base_layer.weight"): one for name, one in exact.named_parameters()}
    rows, unrounded = tiles(lake()), policy_for(real_model, lake())
    base: Any = unrounded.backbone.lm.get_base_model()  # type: ignore[operator]
    replaced = [(weight, weights[name]) for name, weight in base.named_parameters() if "lora_" not in name]
    assert len(replaced) == len(weights)
    with th.no_grad():
        for weight, value in replaced:
            assert th.equal(weight, value.bfloat16().float())
            weight.copy_(value)
        found: list[Any] = [one.get_distribution(rows) for one in (policy, unrounded)]
    first, second = (one.distribution.probs for one in found)
    assert 0 < (first - second).abs().max() < 0.01


def test_one_update_makes_a_demonstrated_action_likelier(real_model: str) -> None:
    env = lake()
    policy = policy_for(real_model, env)
    rows = tiles(env)[:4]
    actions = th.full((len(rows),), DEMONSTRATED)

    def loss() -> th.Tensor:
        _, log_prob, _ = policy.evaluate_actions(rows, actions)
        return -log_prob.mean()

    policy.set_training_mode(True)
    before = loss()
    policy.optimizer.zero_grad()
    before.backward()
    policy.optimizer.step()
    with th.no_grad():
        after = loss()
    assert after.item() < before.item() - 0.01


def test_written_answer_that_is_closed_by_a_phrase_is_read(real_model: str) -> None:
    env = lake(action_mode="generate", tokenizer=real_model, max_new_tokens=12, close_with_phrase=True)
    policy = policy_for(real_model, env)
    observation, _ = env.reset(seed=0)
    th.manual_seed(0)
    with th.no_grad():
        actions, values, log_probs = policy(obs_as_tensor(np.stack([observation, observation]), "cpu"))
    assert values.isfinite().all()
    assert (log_probs < 0).all()
    for action in actions.numpy():
        answer = env.read_answer(action)
        assert not answer.parse_error
        assert answer.phrase in env.prompt.actions
        assert any(letter.isalpha() for letter in answer.text.partition("Action:")[0])  # it wrote something before
    evaluated_values, evaluated, _ = policy.evaluate_actions(obs_as_tensor(np.stack([observation] * 2), "cpu"), actions)
    th.testing.assert_close(evaluated, log_probs, rtol=0, atol=1e-4)
    th.testing.assert_close(evaluated_values.flatten(), values.flatten(), rtol=1e-4, atol=1e-4)


def test_it_is_loaded_by_name_in_a_moment(real_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was converted is not converted, nor even read, again."""
    monkeypatch.setenv("LMPOLICY_CACHE", str(Path(real_model).parents[1]))
    start, hub_id = time.perf_counter(), "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert models.resolve("SmolLM2-135M-Instruct") == models.resolve(hub_id) == real_model
    assert time.perf_counter() - start < 0.5

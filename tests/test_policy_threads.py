"""Policies that are built, asked and trained in several threads."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from helpers.lm_tools import SHARED, UNSHARED, encode, make_policy
from helpers.policy_tools import corridor, ppo
from helpers.written_answers import writing_policy
from transformers import AutoModelForCausalLM, AutoTokenizer

from lmpolicy.lm.optimizer_steps import after_step
from lmpolicy.text.spaces import row_keys

THREADS = 3
ROWS = encode([*SHARED, *UNSHARED])


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(work: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """What each thread returns; its error is raised here."""
    results: list[Any] = [None] * count
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            results[number] = work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def test_policies_are_built_in_several_threads(llama: str, tmp_path: Path) -> None:
    # Transformers loads with the default dtype of torch set to that of the weights, for all threads.
    AutoModelForCausalLM.from_pretrained(llama).bfloat16().save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(llama).save_pretrained(tmp_path)
    expected = make_policy(tmp_path, dtype="float32")

    def build(_: int) -> list[Any]:
        policies = [make_policy(tmp_path, dtype="float32") for _ in range(2)]
        assert all(bool(th.isfinite(one.predict_values(ROWS)).all()) for one in policies)
        return policies

    for policy in (policy for built in in_threads(build) for policy in built):
        assert {weight.dtype for weight in policy.parameters()} == {th.float32}
        for name, weight in expected.named_parameters():
            if not weight.requires_grad:
                assert th.equal(dict(policy.named_parameters())[name], weight)


@pytest.mark.usefixtures("frequent_switches")
@pytest.mark.parametrize("make", [make_policy, writing_policy], ids=["chooses", "writes"])
def test_a_policy_is_asked_by_several_threads(llama: str, make: Callable[[str], Any]) -> None:
    policy = make(llama)
    expected = [policy.predict(row[None].numpy(), deterministic=True)[0] for row in ROWS]
    values = policy.predict_values(ROWS).detach()
    inside = 0
    most = 0
    original = policy.actor.scorer.backbone.lm.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        try:
            return original(*args, **kwargs)
        finally:
            inside -= 1

    policy.actor.scorer.backbone.lm.forward = forward

    def ask(number: int) -> None:
        for turn in range(3):
            row = (number + turn) % len(ROWS)
            action, _ = policy.predict(ROWS[row][None].numpy(), deterministic=True)
            assert (action == expected[row]).all()
            with th.no_grad():
                th.testing.assert_close(policy.predict_values(ROWS[row : row + 1]), values[row : row + 1])
            after_step(policy)  # as after an optimizer step: what was remembered is forgotten

    policy._scheduled_rate = 1e-2
    in_threads(ask)
    assert most == 1


def test_a_policy_plays_while_it_learns(llama: str) -> None:
    learner = ppo(llama, corridor(), n_steps=8).learn(8)
    rows = learner.env.reset()  # type: ignore[union-attr]
    done = threading.Event()

    def work(number: int) -> int:
        if number == 0:
            try:
                learner.learn(32, reset_num_timesteps=False)
            finally:
                done.set()
            return 0
        turns = 0
        while not done.is_set():
            learner.policy.predict(rows, deterministic=True)
            turns += 1
        return turns

    assert in_threads(work, count=2)[1] > 0
    assert learner.num_timesteps == 40
    assert all(bool(weight.isfinite().all()) for weight in learner.policy.parameters())


def test_a_thread_that_plays_leaves_the_training_mode_as_it_is(llama: str) -> None:
    policy = make_policy(llama)
    policy.set_training_mode(True)
    in_threads(lambda _: policy.predict(ROWS.numpy()), count=1)
    assert policy.training
    policy.predict(ROWS.numpy())
    assert not policy.training
    in_threads(lambda _: policy.set_training_mode(True), count=1)
    policy.predict(ROWS.numpy())
    assert not policy.training, "the thread that learnt has ended"


ASKS: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "state_dict": lambda policy: policy.state_dict(),
    "probabilities": lambda policy: policy.actor.probabilities(row_keys(ROWS.numpy())),
    "statistics": lambda policy: policy.actor.rollout_statistics(row_keys(ROWS.numpy()), np.zeros((len(ROWS), 1))),
    "set_reference": lambda policy: policy.set_reference(),
}


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS.keys())
def test_copies_and_callbacks_wait_while_the_model_runs(llama: str, ask: Callable[[Any], Any]) -> None:
    policy = make_policy(llama, reference={"beta": 0.1})
    asker = threading.Thread(target=lambda: ask(policy), daemon=True)
    with policy.alone():
        asker.start()
        asker.join(0.2)
        assert asker.is_alive()
    asker.join()


@pytest.mark.parametrize("make", [make_policy, writing_policy], ids=["chooses", "writes"])
def test_a_part_that_runs_again_in_the_backward_pass_holds_the_lock(llama: str, make: Callable[..., Any]) -> None:
    policy = make(llama, micro_batch_size=2)
    actions = th.from_numpy(policy.predict(ROWS.numpy(), deterministic=True)[0])
    _, log_prob, _ = policy.evaluate_actions(ROWS, actions)
    seen: list[Any] = []
    original = policy.backbone.lm.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        asker = threading.Thread(target=lambda: policy.predict(ROWS[:1].numpy()), daemon=True)
        if not seen:  # the first part: another thread asks meanwhile, and has to wait
            seen.append(asker)
            asker.start()
            asker.join(0.2)
            assert asker.is_alive()
        return original(*args, **kwargs)

    policy.backbone.lm.forward = forward
    log_prob.sum().backward()
    seen[0].join()


def test_answers_in_inference_mode(llama: str) -> None:
    learner = ppo(llama, corridor(), {"lora": {"r": 4, "last_layers": 1}}, n_steps=8)
    rows = th.from_numpy(learner.env.reset())  # type: ignore[union-attr]
    expected = learner.policy.get_distribution(rows).distribution.logits
    learner.policy.actor.forget()
    with th.inference_mode():
        again = learner.policy.get_distribution(rows.clone()).distribution.logits
        learner.policy.predict(rows.numpy())
    assert th.equal(again, expected)
    assert not again.is_inference()
    learner.learn(16)  # what was remembered in inference mode serves training

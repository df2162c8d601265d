"""Ask a policy what it would do about prompts, outside a rollout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch as th

from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.text.prompt import Prompt
from lmpolicy.text.spaces import TextSpace, TokenSpace


@dataclass(frozen=True)
class Decided:
    """Hold what a policy would do about a prompt."""

    prompt: Prompt
    """What was read."""
    probabilities: dict[str, float]
    """Probability of each legal phrase; empty if the policy writes."""
    action: str | None
    """Phrase that is taken. None: the policy writes, and no phrase is part of its answers."""
    answer: str | None
    """Text that is written, if the policy writes."""
    value: float
    """Value of the prompt, from the critic."""
    given: Any
    """What :meth:`~lmpolicy.TextObservationWrapper.step` takes for it."""


@th.no_grad()
def decide(policy: LMActorCriticPolicy, texts: Sequence[str], greedy: bool) -> list[Decided]:
    """Let a policy decide on prompts outside a rollout.

    :param policy: policy to ask.
    :param texts: prompts as the JSON of :meth:`~lmpolicy.Prompt.to_json`.
    :param greedy: whether to take the most likely action instead of sampling one.
    """
    space = policy.observation_space
    assert isinstance(space, TextSpace)
    policy.set_training_mode(False)
    rows = th.from_numpy(np.stack([space.encode(text) for text in texts])).to(policy.device)
    actions = policy._predict(rows, deterministic=greedy).cpu().numpy()
    values = policy.predict_values(rows).flatten().tolist()
    prompts = [Prompt.from_json(text) for text in texts]
    if isinstance(policy.action_space, TokenSpace):
        answers = [_written(policy, row, prompt) for row, prompt in zip(actions, prompts, strict=True)]
        return [
            Decided(prompt, {}, phrase, text, value, row)
            for prompt, (text, phrase), value, row in zip(prompts, answers, values, actions, strict=True)
        ]
    shares: list[list[float]] = policy.get_distribution(rows).distribution.probs.tolist()  # type: ignore[union-attr]
    return [
        Decided(prompt, _legal(prompt, row), _named(prompt, int(action)), None, value, int(action))
        for prompt, row, action, value in zip(prompts, shares, actions, values, strict=True)
    ]


def _legal(prompt: Prompt, shares: Sequence[float]) -> dict[str, float]:
    return dict(zip(prompt.actions, shares[: len(prompt.actions)], strict=True))


def _named(prompt: Prompt, action: int) -> str | None:
    return prompt.actions[action] if action < len(prompt.actions) else None


def _written(policy: LMActorCriticPolicy, row: Any, prompt: Prompt) -> tuple[str, str | None]:
    """Return the text of an answer, and the phrase that was chosen after it, if there is one."""
    assert isinstance(policy.action_space, TokenSpace)
    ids, number = policy.action_space.split(row)
    tokenizer = policy.backbone.tokenizer
    text = str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
    return text, None if number is None else _named(prompt, number)

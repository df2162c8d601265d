"""Show what a model would do about one observation, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.report.tables import messages_block, shares_table
from lmpolicy.text.prompt import Prompt
from lmpolicy.text.spaces import TextSpace
from lmpolicy.training.deciding import decide


@dataclass(frozen=True)
class Explanation:
    """Hold what a model would do about one observation. It prints as a table, also in a notebook."""

    prompt: Prompt
    """What the model reads."""
    probabilities: dict[str, float]
    """Probability of each legal phrase, in the order of the prompt; empty if the model writes."""
    action: str | None
    """The most likely phrase. None: the model writes, and no phrase is part of its answers."""
    answer: str | None
    """The text that the model writes if it takes the most likely token each time. None: it chooses a phrase."""
    value: float
    """The critic's value of the observation, in the units of the rewards that the learner sees."""

    def __str__(self) -> str:
        lines = [f"[{role}] {content}" for role, content in self.prompt.messages]
        width = max(map(len, self.probabilities), default=0)
        for phrase, share in self.probabilities.items():
            mark = "*" if phrase == self.action else " "
            lines.append(f"{mark} {phrase:<{width}} {share:6.3f} {'#' * round(30 * share)}".rstrip())
        if self.answer is not None:
            lines.append(f"answer: {self.answer!r}" + ("" if self.action is None else f", then {self.action!r}"))
        return "\n".join([*lines, f"value: {self.value:.4g}"])

    def _repr_html_(self) -> str:
        """Return a table for a notebook, in which all text is escaped."""
        messages = [{"role": role, "content": content} for role, content in self.prompt.messages]
        if self.answer is not None:
            messages.append({"role": "answer", "content": self.answer})
        shares = shares_table(self.probabilities, self.action) if self.probabilities else ""
        return f"{messages_block(messages)}{shares}<p>value: {self.value:.4g}</p>"


def explain(model: Any, observation: Any) -> Explanation:
    """Show what a model would do about one observation, and how sure it is.

    Example:
        >>> import gymnasium as gym
        >>> import lmpolicy
        >>> from stable_baselines3 import PPO
        >>> env = lmpolicy.TextObservationWrapper(gym.make("Blackjack-v1"))
        >>> model = PPO(lmpolicy.LMActorCriticPolicy, env, n_steps=8, batch_size=8)
        >>> shown = lmpolicy.explain(model, env.encode((20, 10, 0)))
        >>> list(shown.probabilities), shown.action in ("stick", "hit")
        (['stick', 'hit'], True)

    :param model: learner or policy with a language model.
    :param observation: what ``reset`` or ``step`` of a :class:`~lmpolicy.TextObservationWrapper` returned, or its
        ``encode`` for any observation of the env; one row, or a batch of one.
    :raises TypeError: if the model has no language model, or the observation is no row; the message says what is.
    """
    policy = getattr(model, "policy", model)
    if not isinstance(policy, LMActorCriticPolicy):
        raise TypeError(f"explain() is for LMActorCriticPolicy, got {type(policy).__name__}")
    space = policy.observation_space
    assert isinstance(space, TextSpace)
    row = np.asarray(observation)
    row = row[0] if row.ndim == 2 and len(row) == 1 else row
    if row.dtype != np.uint8 or row.shape != space.shape:
        raise TypeError(
            f"an observation is one row of the policy's space, uint8 of shape {space.shape}; got {row.dtype} of shape "
            f"{row.shape}. env.encode(observation) of a TextObservationWrapper makes one of an observation of the env"
        )
    (one,) = decide(policy, [space.decode(row)], greedy=True)
    return Explanation(one.prompt, one.probabilities, one.action, one.answer, one.value)

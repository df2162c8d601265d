"""Ask the policy about the same prompts, again and again while it learns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.text.spaces import decode_bytes
from lmpolicy.training.deciding import decide
from lmpolicy.training.turns import Turn


class SamePrompts:
    """Hold a few prompts, and ask for the policy's decisions on them.

    :param n_prompts: number of prompts. They are distinct prompts of the first rollout, chosen at random.
    :param seed: seed of the choice.
    """

    def __init__(self, n_prompts: int, seed: int) -> None:
        self.n_prompts, self._random = n_prompts, np.random.default_rng(seed)
        self._texts: list[str] = []

    def state_dict(self) -> dict[str, Any]:
        """Return the prompts."""
        return {"texts": self._texts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with these prompts.

        :param state: what :meth:`state_dict` returned.
        """
        self._texts = list(state["texts"])

    def choose(self, keys: Sequence[bytes]) -> None:
        """Choose the prompts, unless that was done before.

        :param keys: keys of the prompts of a rollout.
        """
        if not self._texts:
            distinct = list(dict.fromkeys(keys))
            count = min(self.n_prompts, len(distinct))
            chosen = np.sort(self._random.choice(len(distinct), count, replace=False))
            self._texts = [decode_bytes(distinct[place]) for place in chosen]

    def ask(self, policy: LMActorCriticPolicy, env_step: int) -> list[Turn]:
        """Return what the policy would do: most likely action, probabilities and value.

        :param policy: policy as it is now.
        :param env_step: number of env steps that it was trained for.
        :return: one turn for each prompt; ``turn`` is the number of the prompt.
        """
        if not self._texts:
            return []
        decided = decide(policy, self._texts, greedy=True)
        return [
            Turn(
                env_step=env_step,
                env=0,
                messages=[{"role": role, "content": content} for role, content in one.prompt.messages],
                probabilities=one.probabilities,
                action=one.action,
                env_reward=None,
                value=one.value,
                answer=one.answer,
                turn=number,
                greedy=True,
            )
            for number, one in enumerate(decided)
        ]

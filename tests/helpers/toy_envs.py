"""Small envs whose every answer a test can foretell, and tasks that put them into words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium as gym
from gymnasium import Space, spaces

from lmpolicy import TextTask


class Toy(gym.Env):
    """Observes samples of any space, takes any action and remembers it; an episode has ``length`` steps."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, observation_space: Space[Any], action_space: Space[Any], length: int = 5) -> None:
        self.observation_space, self.action_space, self.length = observation_space, action_space, length
        self.taken: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.taken = []
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.taken.append(action)
        return self.observation_space.sample(), 1, len(self.taken) >= self.length, False, {"count": len(self.taken)}


class Script(Toy):
    """Observes the given texts in turn; the episode ends with the last of them."""

    def __init__(self, texts: Sequence[str], action_space: Space[Any] | None = None) -> None:
        longest = max(map(len, texts))
        super().__init__(spaces.Text(max(1, longest), min_length=0), action_space or spaces.Discrete(2), len(texts) - 1)
        self.texts = list(texts)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.texts[0], {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        _, reward, terminated, truncated, info = super().step(action)
        return self.texts[len(self.taken)], reward, terminated, truncated, info


class Told(TextTask):
    """Says the texts of a Script as they are."""

    system_prompt = "Play."
    action_texts = ("left", "right")


class Corridor(gym.Env):
    """Walk to cell 3 of a corridor; cell 0 has no way left. Episodes end there, or after 8 steps."""

    observation_space = spaces.Discrete(4)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        self.cell, self.steps = 0, 0
        return self.cell, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        assert self.cell > 0 or action == 1, "the illegal action was taken"
        self.cell += 1 if action == 1 else -1
        self.steps += 1
        return self.cell, float(self.cell == 3), self.cell == 3, self.steps == 8, {}


class CorridorTask(TextTask):
    """Names the cell, and the ways out of it."""

    max_actions = 3  # one more than there ever are

    def format_observation(self, observation: Any) -> str:
        return f"You are in cell {observation}"

    def action_texts(self, observation: Any, info: dict[str, Any]) -> dict[str, int]:  # type: ignore[override]
        return {"right": 1} if observation == 0 else {"left": 0, "right": 1}


class Wall(Corridor):
    """A corridor where a step into the wall is a step in vain."""

    def step(self, action: int) -> Any:
        if self.cell == 0 and action == 0:
            self.steps += 1
            return self.cell, 0.0, False, self.steps == 8, {}
        return super().step(action)

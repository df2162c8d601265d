"""Spaces whose numbers have names, and tasks that tell them."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from helpers.toy_envs import Toy

from lmpolicy import GenericTask

THREE = spaces.Box(np.array([0, -1, -np.inf], np.float32), np.array([1, 1, np.inf], np.float32))
UNBOUNDED = spaces.Box(-np.inf, np.inf, (3,))
GRID = spaces.Box(0, 9, (2, 3))
PARTS = spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Discrete(3), c=spaces.Text(5))


def bound(space: Any, env: Any = None, **kwargs: Any) -> GenericTask:
    task = GenericTask(**kwargs)
    task.bind(env or Toy(space, spaces.Discrete(2)))
    return task


def phrase(task: GenericTask) -> str:
    return task.system_prompt.removeprefix("You act in the environment Toy. An observation is ").removesuffix(
        ". Choose the actions that bring the most reward."
    )

"""Make TextObservationWrappers, read their rows, and write the prompts that tests expect."""

from __future__ import annotations

from typing import Any

from helpers.toy_envs import Script, Told

from lmpolicy import Prompt, TextObservationWrapper, TextSpace

CUT = " [... cut]"
"""Text that stands where a prompt was cut."""


def told(*texts: str, **kwargs: Any) -> TextObservationWrapper:
    """Wrap a script of the given texts."""
    return TextObservationWrapper(Script(texts), Told(), **kwargs)


def read(env: TextObservationWrapper, row: Any) -> Prompt:
    """Return the prompt that a row holds, which is the one that the wrapper shows."""
    space = env.observation_space
    assert isinstance(space, TextSpace)
    assert space.contains(row)
    prompt = Prompt.from_json(space.decode(row))
    assert prompt == env.prompt
    return prompt


def expected(*turns: str, system: str = "Play. Possible actions: left, right.") -> Prompt:
    """Make the prompt of these turns, the user's and the assistant's in turn."""
    messages = [("user" if index % 2 == 0 else "assistant", turn) for index, turn in enumerate(turns)]
    return Prompt((("system", system), *messages), ("left", "right"))

"""How tests of TextObservationWrapper make one, read its rows and say what is to stand there."""

from __future__ import annotations

from typing import Any

from helpers.toy_envs import Script, Told

from lmpolicy import Prompt, TextObservationWrapper, TextSpace

CUT = " [... cut]"


def told(*texts: str, **kwargs: Any) -> TextObservationWrapper:
    """A wrapped env that shows these texts one after the other."""
    return TextObservationWrapper(Script(texts), Told(), **kwargs)


def read(env: TextObservationWrapper, row: Any) -> Prompt:
    """The prompt that a row holds, which is the one that the wrapper shows."""
    space = env.observation_space
    assert isinstance(space, TextSpace)
    assert space.contains(row)
    prompt = Prompt.from_json(space.decode(row))
    assert prompt == env.prompt
    return prompt


def expected(*turns: str, system: str = "Play. Possible actions: left, right.") -> Prompt:
    """The prompt after these turns, which are the user's and the assistant's by turns."""
    messages = [("user" if index % 2 == 0 else "assistant", turn) for index, turn in enumerate(turns)]
    return Prompt((("system", system), *messages), ("left", "right"))

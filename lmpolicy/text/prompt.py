"""Hold what the agent reads at one step."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import InitVar, dataclass

from lmpolicy.text.listing import join_phrases, list_phrases

ROLES = ("system", "user", "assistant")
CUE = "Action:"
"""What stands before an answer if the model has no chat template. With a template, a model may write it itself."""
THINKING_CUE = "Thought:"
"""What stands before an answer that begins with thoughts, if the model has no chat template."""


@dataclass(frozen=True)
class Prompt:
    """Hold the chat messages and the legal phrases of one step.

    A prompt travels as JSON in a row of a :class:`~lmpolicy.TextSpace`.

    :param messages: ``(role, content)`` pairs. A system message may come first; then user and assistant alternate; the
        last message is from the user.
    :param actions: the legal phrases, all different; action index i of this step is ``actions[i]``. Empty where the
        answer is free text and the env's actions have no phrases.
    :param cue: what the prompt ends with if the model has no chat template; the answer begins after it.
    :param checked: the phrases are not checked, because :func:`check_phrases` has been called on them already.
    :raises ValueError: if messages or phrases break these rules; the message names the wrong part.
    """

    messages: tuple[tuple[str, str], ...]
    actions: tuple[str, ...]
    cue: str = CUE
    checked: InitVar[bool] = False

    def __post_init__(self, checked: bool) -> None:
        turns = self.messages[1:] if self.messages and self.messages[0][0] == "system" else self.messages
        roles = [role for role, _ in turns]
        if roles != [ROLES[1 + i % 2] for i in range(len(roles))] or len(roles) % 2 == 0:
            raise ValueError(
                "messages must be an optional system message, then user and assistant in turn, ending with the user; "
                f"got roles {[role for role, _ in self.messages]}"
            )
        if not checked:
            check_phrases(self.actions)

    def to_json(self) -> str:
        """Write the prompt as compact JSON."""
        messages = [{"role": role, "content": content} for role, content in self.messages]
        cue = {} if self.cue == CUE else {"cue": self.cue}
        parts = {"messages": messages, **cue, "actions": self.actions}
        return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Prompt:
        """Read back what :meth:`to_json` wrote.

        :param text: the text of a row.
        :raises ValueError: if the text is no prompt.
        """
        try:
            data = json.loads(text)
            messages = tuple((message["role"], message["content"]) for message in data["messages"])
            actions, cue = data["actions"], data.get("cue", CUE)
            parts = [cue, *(part for pair in messages for part in pair)]
            if not isinstance(actions, list) or not all(isinstance(part, str) for part in parts):
                raise TypeError("roles, contents and cue must be strings, actions a list")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError(
                f"this text is no prompt ({error!r}): {text[:80]!r}. Observations for LMActorCriticPolicy come from "
                "TextObservationWrapper"
            ) from error
        return cls(messages, tuple(actions), cue)

    def __str__(self) -> str:
        lines = [f"[{role}] {content}" for role, content in self.messages]
        if self.actions:
            lines.append(
                "[actions] " + join_phrases([f"{index}: {phrase}" for index, phrase in enumerate(self.actions)])
            )
        return "\n".join(lines)


def cue_after(answer: str) -> str:
    """Return the cue for choosing a phrase after an answer.

    The cue stands between the answer and the phrase. It is ``Action:`` on a line of its own, and empty if the answer
    ends with ``Action:`` itself.

    :param answer: what the model wrote before the phrase is chosen.
    """
    if answer.rstrip().endswith(CUE):
        return ""
    return CUE if not answer or answer.endswith("\n") else "\n" + CUE


def check_phrases(phrases: Sequence[str]) -> None:
    """Refuse phrases that a policy cannot tell apart or cannot score.

    :param phrases: the legal phrases of a step.
    :raises ValueError: if a phrase is no string, is empty, has white space at its ends, holds a lone surrogate or is
        named twice.
    """
    for phrase in phrases:
        if not isinstance(phrase, str) or not phrase or phrase != phrase.strip():
            raise ValueError(
                f"an action phrase must be a non-empty string without white space at its ends, got {phrase!r}"
            )
        try:
            phrase.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"an action phrase must be expressible in UTF-8, without lone surrogates, got {phrase!r}"
            ) from None
    if len(set(phrases)) != len(phrases):
        twice = sorted(phrase for phrase, count in Counter(phrases).items() if count > 1)
        raise ValueError(f"action phrases must be distinct, named twice: {list_phrases([*map(repr, twice)])}")

"""What the agent reads at one step: chat messages and the action phrases that are legal right now."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lmpolicy.text_space import utf8

ROLES = ("system", "user", "assistant")
CUE = "Action:"
"""Where there is no chat template: what stands before an answer. With one, what a model may say before its action."""
PHRASE_CACHE = 65_536


@dataclass(frozen=True)
class Prompt:
    """Chat messages plus the legal action phrases of this step; travels as JSON inside a ``TextSpace`` row.

    :param messages: ``(role, content)`` pairs; a system message only in first place, then user and assistant in turn,
        the last one from the user.
    :param actions: the legal phrases, distinct; action index i of this step is ``actions[i]``. Empty where the answer
        is free text and the env's actions have no phrases.
    :param cue: where the model has no chat template: what the prompt ends with, and answers begin after.
    :raises ValueError: if messages or phrases break these rules; the message names the offender.
    """

    messages: tuple[tuple[str, str], ...]
    actions: tuple[str, ...]
    cue: str = CUE

    def __post_init__(self) -> None:
        turns = self.messages[1:] if self.messages and self.messages[0][0] == "system" else self.messages
        roles = [role for role, _ in turns]
        if roles != [ROLES[1 + i % 2] for i in range(len(roles))] or len(roles) % 2 == 0:
            raise ValueError(
                "messages must be an optional system message, then user and assistant in turn, ending with the user; "
                f"got roles {[role for role, _ in self.messages]}"
            )
        if self.actions:
            check_phrases(self.actions)

    def to_json(self) -> str:
        """The prompt as compact JSON."""
        messages = [{"role": role, "content": content} for role, content in self.messages]
        cue = {} if self.cue == CUE else {"cue": self.cue}
        parts = {"messages": messages, **cue, "actions": self.actions}
        return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Prompt:
        """Read back what :meth:`to_json` wrote.

        :param text: the decoded row.
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
            lines.append("[actions] " + ", ".join(f"{i}: {a}" for i, a in enumerate(self.actions)))
        return "\n".join(lines)


def closing(answer: str) -> str:
    """What leads from an answer to the phrase that closes it: ``Action:`` on a line of its own, unless it is there.

    :param answer: text as far as the model wrote it.
    """
    if answer.rstrip().endswith(CUE):
        return ""
    return CUE if not answer or answer.endswith("\n") else "\n" + CUE


def check_phrases(phrases: Sequence[str]) -> None:
    """Refuse phrases that could not be told apart or not be scored.

    :param phrases: the legal phrases of a step.
    :raises ValueError: if there are none, or one is empty, padded with white space, no string, not expressible in
        UTF-8 or named twice.
    """
    if not phrases:
        raise ValueError("a prompt needs at least one legal action phrase")
    for phrase in phrases:
        if not isinstance(phrase, str) or not phrase or phrase != phrase.strip():
            raise ValueError(
                f"an action phrase must be a non-empty string without white space at its ends, got {phrase!r}"
            )
        if utf8(phrase).decode() != phrase:
            raise ValueError(f"an action phrase must be expressible in UTF-8, without lone surrogates, got {phrase!r}")
    if len(set(phrases)) != len(phrases):
        twice = sorted({phrase for phrase in phrases if list(phrases).count(phrase) > 1})
        raise ValueError(f"action phrases must be distinct, named twice: {', '.join(map(repr, twice))}")


class PromptRenderer:
    """Token ids of prompts and action phrases for one tokenizer.

    With a chat template, the prompt is rendered through it up to where the assistant's answer begins. Without one, a
    plain template is used. Either way, text from the environment is tokenized as ordinary text: a control token
    spelled out in an observation stays a string of characters.

    :param tokenizer: a Transformers tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.has_template = tokenizer.chat_template is not None
        self.system_role = self.has_template and self._takes_system_role()
        self.separator = self._separator() if self.has_template else " "
        self.action_ids = lru_cache(maxsize=PHRASE_CACHE)(self._action_ids)

    def prompt_ids(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Token ids of each prompt, up to where the answer begins.

        :param prompts: any number of prompts.
        :return: one list of ids per prompt, without padding.
        """
        if not prompts:
            return []
        if not self.has_template:
            return [self._plain_ids(prompt) for prompt in prompts]
        ids = self.tokenizer.apply_chat_template(
            [self._chat(prompt) for prompt in prompts],
            add_generation_prompt=True,
            sanitize_control_tokens=True,
            return_dict=False,
            enable_thinking=False,  # reasoning models: the phrase follows the prompt at once; unknown to others
        )
        return [list(row) for row in ids]

    def _action_ids(self, phrase: str) -> tuple[int, ...]:
        """Token ids of a phrase as it follows a prompt; cached under the name ``action_ids``.

        :param phrase: an action phrase.
        :raises ValueError: if the tokenizer makes no token of it.
        """
        # Behind a line break, because SentencePiece tokenizers put a space before the first word of a string, which
        # is not there in the middle of a chat. Tokenizers that join the line break to what follows do no such thing.
        text = self.separator + phrase
        line_break, ids = self.text_ids("\n"), self.text_ids("\n" + text)
        ids = ids[len(line_break) :] if ids[: len(line_break)] == line_break else self.text_ids(text)
        if not ids:
            raise ValueError(f"the tokenizer makes no token of the action phrase {phrase!r}; choose another phrase")
        return tuple(ids)

    def _chat(self, prompt: Prompt) -> list[dict[str, str]]:
        messages = [{"role": role, "content": content} for role, content in prompt.messages]
        if messages[0]["role"] == "system" and not self.system_role:
            # Templates such as Gemma's know no system role: its text opens the first user message instead.
            system, user, *rest = messages
            return [{"role": "user", "content": f"{system['content']}\n\n{user['content']}"}, *rest]
        return messages

    def _render(self, messages: list[dict[str, str]], generation_prompt: bool) -> str:
        return self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=generation_prompt, enable_thinking=False
        )

    def _takes_system_role(self) -> bool:
        messages = [{"role": "system", "content": "QXSYSTEM"}, {"role": "user", "content": "QXUSER"}]
        try:
            return "QXSYSTEM" in self._render(messages, True)
        except Exception:  # templates raise jinja2's TemplateError, or whatever their author chose
            return False

    def _separator(self) -> str:
        """White space that the template writes between the generation prompt and the assistant's words."""
        messages = [{"role": "user", "content": "QXUSER"}]
        prompt = self._render(messages, True)
        answered = self._render([*messages, {"role": "assistant", "content": "QXANSWER"}], False)
        between = answered[len(prompt) :].partition("QXANSWER")[0] if answered.startswith(prompt) else ""
        return between if between.isspace() else ""

    def _plain_ids(self, prompt: Prompt) -> list[int]:
        before = {"system": "", "user": "Observation: ", "assistant": prompt.cue + " "}
        after = {"system": "\n", "user": "", "assistant": "\n"}
        lines = [before[role] + content + after[role] for role, content in prompt.messages]
        text = "\n".join([*lines, prompt.cue])
        bos = self.tokenizer.bos_token_id
        starts_with_bos = bos is not None and self.tokenizer("a").input_ids[:1] == [bos]
        return ([bos] if starts_with_bos else []) + self.text_ids(text)

    def text_ids(self, text: str) -> list[int]:
        """Ids of text in which no control token is recognised.

        :param text: any string.
        """
        return list(self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))

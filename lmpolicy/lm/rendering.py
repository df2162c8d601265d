"""Turn prompts and action phrases into token ids, with the model's chat template or a plain one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from lmpolicy.models import ModelError
from lmpolicy.text.prompt import Prompt

OTHER_TEMPLATE = (
    "correct the template in the model's folder (chat_template.jinja, or chat_template in tokenizer_config.json), take "
    "it out, so that prompts are plain text, or choose another model"
)
"""What to do about a chat template that cannot be used."""


TEMPLATE_DATE = datetime(2024, 7, 26)
"""The date in prompts of templates that ask for today's. With the true one, a policy would change from day to day."""


class PromptRenderer:
    """Turn prompts and action phrases into token ids for one tokenizer.

    With a chat template, a prompt is rendered up to the place where the assistant's answer begins. Without one, a plain
    template is used. Text from the environment is always tokenized as ordinary text: if an observation spells out a
    control token, it stays a string of characters.

    :param tokenizer: Transformers tokenizer.
    :param name: name of the model in messages.
    :param encodes: whether prompts are for the encoder of an encoder-decoder model. They are then whole texts, with the
        special tokens that the tokenizer writes around a text, and phrases are the beginnings of others.
    :raises ModelError: if the chat template raises an error, or drops what the user says; the message says what to do.
    """

    def __init__(self, tokenizer: Any, name: str = "the model", encodes: bool = False) -> None:
        self.tokenizer, self.name, self.encodes = tokenizer, name, encodes
        self._control = {
            number: str(token) for number, token in tokenizer.added_tokens_decoder.items() if token.special
        }
        self.has_template = tokenizer.chat_template is not None
        # Reasoning models are told not to think, so that the phrase follows the prompt at once.
        self._arguments: dict[str, Any] = {"enable_thinking": False}
        if self.has_template:
            self._arguments["chat_template"] = without_today(tokenizer.get_chat_template())
            self._check_template()
        self.system_role = self.has_template and self._takes_system_role()
        self.keeps_turns = not self.has_template or self._keeps_turns()
        self.separator = self._separator() if self.has_template else " "

    def prompt_ids(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Return the token ids of each prompt.

        They end where the answer begins.

        :param prompts: any number of prompts.
        :return: one list of ids per prompt, without padding.
        :raises ValueError: if the chat template cannot write a prompt; the message says what to do.
        """
        if not prompts:
            return []
        if not self.has_template:
            return [self._plain_ids(prompt) for prompt in prompts]
        chats = [self._chat(prompt) for prompt in prompts]
        if not self.keeps_turns and any(len(chat) > 1 + (chat[0]["role"] == "system") for chat in chats):
            raise ValueError(
                f"the chat template of {self.name} drops earlier turns or raises an error at them: make the wrapper "
                f"with history=0, or {OTHER_TEMPLATE}"
            )
        try:
            ids = self.tokenizer.apply_chat_template(
                chats,
                add_generation_prompt=True,
                sanitize_control_tokens=True,
                return_dict=False,
                **self._arguments,
            )
        except Exception as error:  # templates raise jinja2's TemplateError, or any other error
            raise ValueError(
                f"the chat template of {self.name} raises {error!r} at a prompt: {OTHER_TEMPLATE}"
            ) from error
        return [list(row) for row in ids]

    def action_ids(self, phrase: str) -> tuple[int, ...]:
        """Return the token ids of a phrase behind a prompt.

        :param phrase: action phrase.
        :raises ValueError: if the tokenizer makes no token of the phrase; choose another phrase.
        """
        if self.encodes:
            return self._refuse_empty(phrase, self.text_ids(phrase))
        # SentencePiece tokenizers put a space before the first word of a string, which is not there in the middle of a
        # chat. So the phrase is tokenized behind a line break, unless the tokenizer joins the line break to the phrase:
        # such tokenizers add no space.
        text = self.separator + phrase
        line_break, ids = self.text_ids("\n"), self.text_ids("\n" + text)
        ids = ids[len(line_break) :] if ids[: len(line_break)] == line_break else self.text_ids(text)
        return self._refuse_empty(phrase, ids)

    def _refuse_empty(self, phrase: str, ids: list[int]) -> tuple[int, ...]:
        if not ids:
            raise ValueError(f"the tokenizer makes no token of the action phrase {phrase!r}; choose another phrase")
        return tuple(ids)

    def _chat(self, prompt: Prompt) -> list[dict[str, str]]:
        messages = [{"role": role, "content": content} for role, content in prompt.messages]
        if messages[0]["role"] == "system" and not self.system_role:
            # Templates such as Gemma's have no system role, so the system text opens the first user message.
            system, user, *rest = messages
            return [{"role": "user", "content": f"{system['content']}\n\n{user['content']}"}, *rest]
        return messages

    def _render(self, messages: list[dict[str, str]], generation_prompt: bool) -> str:
        return self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=generation_prompt, **self._arguments
        )

    def _check_template(self) -> None:
        """Refuse a template with which no prompt can be written."""
        try:
            text = self._render([{"role": "user", "content": "QXUSER"}], True)
        except Exception as error:  # templates raise jinja2's TemplateError, or any other error
            raise ModelError(
                f"the chat template of {self.name} raises {error!r} at a message of the user: {OTHER_TEMPLATE}"
            ) from error
        if "QXUSER" not in text:
            raise ModelError(
                f"the chat template of {self.name} drops what the user says, so the policy would see no observation: "
                f"{OTHER_TEMPLATE}"
            )

    def _keeps_turns(self) -> bool:
        """Return whether the template writes earlier turns as well."""
        turns = [("user", "QXFIRST"), ("assistant", "QXANSWER"), ("user", "QXSECOND")]
        try:
            text = self._render([{"role": role, "content": content} for role, content in turns], True)
        except Exception:  # as above
            return False
        return all(content in text for _, content in turns)

    def _takes_system_role(self) -> bool:
        messages = [{"role": "system", "content": "QXSYSTEM"}, {"role": "user", "content": "QXUSER"}]
        try:
            return "QXSYSTEM" in self._render(messages, True)
        except Exception:  # templates raise jinja2's TemplateError, or any other error
            return False

    def _separator(self) -> str:
        """Return the white space that the template writes between the generation prompt and the assistant's words."""
        messages = [{"role": "user", "content": "QXUSER"}]
        prompt = self._render(messages, True)
        try:
            answered = self._render([*messages, {"role": "assistant", "content": "QXANSWER"}], False)
        except Exception:  # of a template for one message alone
            return ""
        between = answered[len(prompt) :].partition("QXANSWER")[0] if answered.startswith(prompt) else ""
        return between if between.isspace() else ""

    def _plain_ids(self, prompt: Prompt) -> list[int]:
        before = {"system": "", "user": "Observation: ", "assistant": prompt.cue + " "}
        after = {"system": "\n", "user": "", "assistant": "\n"}
        lines = [before[role] + content + after[role] for role, content in prompt.messages]
        text = "\n".join([*lines, prompt.cue])
        if self.encodes:
            before_text, after_text = special_tokens(self.tokenizer)
            return [*before_text, *self.text_ids(text), *after_text]
        bos = self.tokenizer.bos_token_id
        starts_with_bos = bos is not None and self.tokenizer("a").input_ids[:1] == [bos]
        return ([bos] if starts_with_bos else []) + self.text_ids(text)

    def text_ids(self, text: str) -> list[int]:
        """Tokenize a text as ordinary characters.

        No control token is recognised, even if the text spells one out.

        :param text: any string.
        """
        ids = list(self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))
        # Tokenizers of the kind Unigram, as that of T5, find control tokens among their ordinary pieces all the same.
        spelt = [self._control[one] for one in set(ids) & self._control.keys()]
        spelt = [token for token in spelt if len(token) > 1 and token in text]
        if not spelt:
            return ids
        for token in spelt:
            text = text.replace(token, f"{token[0]} {token[1:]}")
        return self.text_ids(text)


def without_today(template: str) -> str:
    """Return a chat template that writes :data:`TEMPLATE_DATE` in place of the date of today.

    :param template: chat template of Jinja. Transformers gives it today's date by the function ``strftime_now``.
    """
    if "strftime_now" not in template:
        return template
    codes = [f"%{code}" for code in ("-d", "-m", *"aAbBdHIjmMpSyY")]
    written = "".join(f" | replace('{code}', '{TEMPLATE_DATE.strftime(code)}')" for code in codes)
    # The line break behind a block is not written.
    return f"{{%- macro strftime_now(format) -%}}{{{{ format{written} }}}}{{%- endmacro %}}\n{template}"


def special_tokens(tokenizer: Any, target: bool = False) -> tuple[list[int], list[int]]:
    """Return the ids that a tokenizer writes before and after a text.

    :param tokenizer: Transformers tokenizer.
    :param target: whether the text is one that the model answers. Tokenizers for translation mark its language.
    """
    bare = tokenizer.encode("a", add_special_tokens=False)
    whole = list(tokenizer(**{"text_target" if target else "text": "a"}).input_ids)
    starts = [place for place in range(len(whole)) if whole[place : place + len(bare)] == bare]
    return (whole[: starts[0]], whole[starts[0] + len(bare) :]) if starts else ([], [])

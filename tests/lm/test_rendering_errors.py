"""Chat templates that cannot be used, and phrases that a tokenizer cannot tell apart."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.lm_tools import CHATML, chat, encode, make_policy, prompt, save_tokenizer
from helpers.written_answers import writing_policy
from transformers import AutoTokenizer

from lmpolicy.lm.rendering import PromptRenderer
from lmpolicy.models import ModelError


@pytest.fixture
def tokenizer_of(tmp_path: Path) -> Any:
    """A function that makes a tokenizer with a template."""

    def make(template: str | None) -> Any:
        save_tokenizer(tmp_path / "tokenizer", template, bos=False)
        return AutoTokenizer.from_pretrained(tmp_path / "tokenizer")

    return make


# Templates that cannot be used


BROKEN = {
    "drops": "{% for m in messages %}<|start|>{{ m['role'] }}{% endfor %}<|start|>assistant",
    "raises": "{{ raise_exception('no user today') }}",
    "syntax": "{% for m in messages %}",
}


BROKEN_MESSAGES = {"drops": "drops what the user says", "raises": "no user today", "syntax": "raises"}


@pytest.mark.parametrize(("kind", "message"), BROKEN_MESSAGES.items())
def test_templates_that_cannot_write_an_observation(
    kind: str, message: str, llama: str, tmp_path: Path, tokenizer_of: Any
) -> None:
    tokenizer = tokenizer_of(None)
    tokenizer.chat_template = BROKEN[kind]
    with pytest.raises(ModelError, match=rf"(?s)chat template of some/model .*{message}.*correct the template"):
        PromptRenderer(tokenizer, "some/model")
    folder = shutil.copytree(llama, tmp_path / "model")
    (folder / "chat_template.jinja").write_text(BROKEN[kind])
    with pytest.raises(ModelError, match=rf"(?s)chat template of {folder} .*{message}"):
        make_policy(folder)
    (folder / "chat_template.jinja").unlink()  # what the message says
    assert not make_policy(folder).backbone.renderer.has_template


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[-1]['content'] }}<|start|>",
        "{% if messages | length > 1 %}{{ raise_exception('just one') }}{% endif %}{{ messages[0]['content'] }}",
    ],
    ids=["drops", "raises"],
)
def test_templates_for_one_turn(template: str, tokenizer_of: Any) -> None:
    tokenizer = tokenizer_of(template)
    renderer = PromptRenderer(tokenizer)
    (ids,) = renderer.prompt_ids([chat("A")])  # the system text opens the user's message
    assert "Choose the best action.\n\nA" in tokenizer.decode(ids)
    with pytest.raises(ValueError, match=r"drops earlier turns or raises.*history=0"):
        renderer.prompt_ids([chat("A"), chat("A", "up", "B")])


def test_a_template_for_rules_and_one_turn(tokenizer_of: Any) -> None:
    shown = "{% if message['role'] == 'system' or loop.last %}{{ message['content'] }}{% endif %}"
    tokenizer = tokenizer_of(f"{{% for message in messages %}}{shown}{{% endfor %}}<|start|>")
    renderer = PromptRenderer(tokenizer)
    assert not renderer.keeps_turns
    (ids,) = renderer.prompt_ids([chat("A")])
    assert tokenizer.decode(ids).startswith("Choose the best action.A")
    with pytest.raises(ValueError, match=r"drops earlier turns"):
        renderer.prompt_ids([chat("A", "up", "B")])


def test_a_template_that_raises_at_some_prompts(tokenizer_of: Any) -> None:
    template = "{% if 'bad' in messages[-1]['content'] %}{{ raise_exception('bad word') }}{% endif %}" + CHATML
    renderer = PromptRenderer(tokenizer_of(template), "some/model")
    renderer.prompt_ids([chat("good")])
    with pytest.raises(ValueError, match=r"(?s)chat template of some/model raises .*bad word.*at a prompt"):
        renderer.prompt_ids([chat("a bad one")])


# Phrases that are the same tokens


def lower_case_model(llama: str, folder: Path) -> Path:
    """A model whose tokenizer does not see capitals."""
    shutil.copytree(llama, folder)
    state = json.loads((folder / "tokenizer.json").read_text())
    state["normalizer"] = {"type": "Lowercase"}
    (folder / "tokenizer.json").write_text(json.dumps(state))
    return folder


def test_phrases_with_the_same_tokens(llama: str, tmp_path: Path) -> None:
    folder = lower_case_model(llama, tmp_path / "lower")
    message = r"phrases 'Left' and 'left' are the same tokens to .*lower.*action_texts"
    for policy in (make_policy(folder), writing_policy(folder, n_phrases=4)):
        policy(encode([prompt("row 1", ("right", "left"))]))
        with pytest.raises(ValueError, match=message):
            policy(encode([prompt("row 2", ("right", "Left", "left"))]))
    make_policy(llama).predict(encode([prompt("row 2", ("Left", "left"))]).numpy())

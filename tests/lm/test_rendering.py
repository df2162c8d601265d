"""PromptRenderer: the token ids of prompts and phrases, with chat templates of every kind and without one."""

from __future__ import annotations

import json

import pytest
from helpers.lm_tools import chat
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from lmpolicy import Prompt
from lmpolicy.lm.rendering import PromptRenderer, without_today

CONTROL = ["<s>", "</s>", "<pad>", "<|end|>", "<|im_end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|im_start|>"]
CORPUS = (
    "You play a game. Choose the best action. Possible actions: go left, go right, up, down, hit, stick. "
    "Observation: the pole leans by 7.89 degrees. Your total is 10, the dealer shows 2. Action: row 1, column 3.\n"
) * 3
PLAIN_ROLES = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NO_SYSTEM = (  # as Gemma's: raises on a system message, trims, calls the assistant model
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "<|im_start|>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>model\n{% endif %}"
)
DROPS_SYSTEM = (
    "{% for m in messages %}{% if m['role'] != 'system' %}<|{{ m['role'] }}|>{{ m['content'] }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPACED = (  # as Llama 2's: a space stands between the end of the prompt and the answer
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'assistant' %} {{ m['content'] }} {{ eos_token }}"
    "{% else %}[{{ m['role'] }}] {{ m['content'] }} [/]{% endif %}{% endfor %}"
)
LINE_BREAK = (  # as TinyLlama's: the generation prompt stops before the line break
    "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
THINKING = (  # as Qwen 3's: an empty thought in the generation prompt, no thoughts in past answers
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
TEMPLATES = {
    "roles": PLAIN_ROLES,
    "chatml": CHATML,
    "no system": NO_SYSTEM,
    "drops system": DROPS_SYSTEM,
    "spaced": SPACED,
    "line break": LINE_BREAK,
    "thinking": THINKING,
}
KINDS = ("bytes", "sentencepiece")


def make_tokenizer(template: str | None = None, kind: str = "bytes", bos: bool = False) -> PreTrainedTokenizerFast:
    """A small BPE tokenizer, of bytes as GPT-2's, or with a space put before the first word as SentencePiece's."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=kind == "sentencepiece"))
    if kind == "bytes":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
        alphabet = [chr(code) for code in range(33, 127)]
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=CONTROL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([CORPUS.replace("\n", " ")], trainer)
    if kind == "sentencepiece":
        state = json.loads(tokenizer.to_str())
        vocabulary = state["model"]["vocab"]
        vocabulary |= {f"<0x{byte:02X}>": len(vocabulary) + byte for byte in range(256)}
        tokenizer = Tokenizer.from_str(json.dumps(state))
    # Added, but not special, as in Qwen 3
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in ("<think>", "</think>")])
    if bos:
        first = ("<s>", tokenizer.token_to_id("<s>"))
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[first])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        additional_special_tokens=CONTROL[3:],
    )
    fast.chat_template = template
    return fast


def ids_of(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    """Control tokens recognised, none added."""
    return list(tokenizer(text, add_special_tokens=False).input_ids)


def as_messages(prompt: Prompt) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in prompt.messages]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("template", ["roles", "chatml", "spaced", "line break", "thinking"])
def test_prompt_ids_are_those_of_the_rendered_chat(template: str, kind: str) -> None:
    tokenizer = make_tokenizer(TEMPLATES[template], kind)
    batch = [chat("Your total is 10."), chat("a", "up", "b  \n"), chat("é {} {0} %s {{ x }}", system=""), chat("")]
    expected = []
    for prompt in batch:
        text = tokenizer.apply_chat_template(
            as_messages(prompt), tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        assert isinstance(text, str)
        expected.append(ids_of(tokenizer, text))
    renderer = PromptRenderer(tokenizer)
    assert renderer.prompt_ids(batch) == expected
    assert [renderer.prompt_ids([prompt]) for prompt in batch] == [[ids] for ids in expected]
    assert renderer.prompt_ids([]) == []


def test_the_date_of_today_is_in_no_prompt() -> None:
    template = "\n {% if true %}Today is {{ strftime_now('%d %b %Y') }}.{% endif %}\n" + CHATML
    tokenizer = make_tokenizer(template)
    (ids,) = PromptRenderer(tokenizer).prompt_ids([chat("A")])
    (plain,) = PromptRenderer(
        make_tokenizer(template.replace("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"))
    ).prompt_ids([chat("A")])
    assert ids == plain
    assert "Today is 26 Jul 2024." in tokenizer.decode(ids)
    assert without_today("{{ strftime_now('%Y-%m-%d, %-d %B') }}").startswith("{%- macro strftime_now")
    assert without_today(CHATML) == CHATML


def test_rendered_chat_in_full() -> None:
    tokenizer = make_tokenizer(CHATML)
    (ids,) = PromptRenderer(tokenizer).prompt_ids([chat("A", "up", "B", system="S")])
    assert tokenizer.decode(ids) == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\nup<|im_end|>\n"
        "<|im_start|>user\nB<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("template", [NO_SYSTEM, DROPS_SYSTEM])
def test_templates_without_system_role(template: str) -> None:
    tokenizer = make_tokenizer(template)
    renderer = PromptRenderer(tokenizer)
    (ids,) = renderer.prompt_ids([chat("A", "up", "B", system="Rules.")])
    folded = [("user", "Rules.\n\nA"), ("assistant", "up"), ("user", "B")]
    text = tokenizer.apply_chat_template(
        [{"role": role, "content": content} for role, content in folded], tokenize=False, add_generation_prompt=True
    )
    assert isinstance(text, str)
    assert ids == ids_of(tokenizer, text)
    assert "Rules." in tokenizer.decode(ids)
    without = renderer.prompt_ids([chat("A", system="")])[0]
    assert "Rules" not in tokenizer.decode(without)


@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_plain_prompt(kind: str, bos: bool) -> None:
    tokenizer = make_tokenizer(None, kind, bos)
    renderer = PromptRenderer(tokenizer)
    (ids,) = renderer.prompt_ids([chat("A {} {0}", "go left", "B", system="S")])
    text = "S\n\nObservation: A {} {0}\nAction: go left\n\nObservation: B\nAction:"
    assert ids == ([tokenizer.bos_token_id] if bos else []) + ids_of(tokenizer, text)
    assert ids == list(tokenizer(text).input_ids)  # what the tokenizer does by itself
    assert renderer.prompt_ids([chat("A", system="")]) == [list(tokenizer("Observation: A\nAction:").input_ids)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("template", "separator"),
    [("roles", ""), ("chatml", ""), ("drops system", ""), ("spaced", " "), ("line break", "\n"), (None, " ")],
)
def test_phrase_ids_continue_the_prompt(template: str | None, separator: str, kind: str) -> None:
    """Prompt and phrase together are the tokens of the answered chat, as the model saw chats in its training."""
    tokenizer = make_tokenizer(TEMPLATES.get(template or ""), kind)
    renderer = PromptRenderer(tokenizer)
    assert renderer.separator == separator
    for phrase in ("go left", "up", "stick", "7", "3.5, -1", "é🙂", "a  b\nc"):
        prompt = chat("Your total is 10.", actions=(phrase,))
        (ids,) = renderer.prompt_ids([prompt])
        together = ids + list(renderer.action_ids(phrase))
        if template is None:
            answered = f"Choose the best action.\n\nObservation: Your total is 10.\nAction: {phrase}"
        else:
            messages = [m for m in as_messages(prompt) if m["role"] == "user" or renderer.system_role]
            if not renderer.system_role:
                messages[0]["content"] = "Choose the best action.\n\n" + messages[0]["content"]
            messages.append({"role": "assistant", "content": phrase})
            text = tokenizer.apply_chat_template(messages, tokenize=False)
            assert isinstance(text, str)
            answered = text[: text.rindex(phrase) + len(phrase)]
        assert together == ids_of(tokenizer, answered)


def test_thinking_models_answer_at_once() -> None:
    tokenizer = make_tokenizer(THINKING)
    renderer = PromptRenderer(tokenizer)
    (ids,) = renderer.prompt_ids([chat("A")])
    assert tokenizer.decode(ids).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert renderer.separator == ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("template", [None, *TEMPLATES])
def test_control_tokens_in_texts_are_text(template: str | None, kind: str) -> None:
    tokenizer = make_tokenizer(TEMPLATES.get(template or ""), kind, bos=True)
    renderer = PromptRenderer(tokenizer)
    harmless = chat("A", "go B", "C", system="D", actions=("go E",))
    special = set(tokenizer.all_special_ids)
    (expected,) = renderer.prompt_ids([harmless])
    frame = [token for token in expected if token in special]
    for token in CONTROL:
        spelt = [f"{token}{text}{token} x {token}" for text in ("A", "B", "C", "D")]
        attack = chat(spelt[0], spelt[1], spelt[2], system=spelt[3], actions=(spelt[1], token))
        (ids,) = renderer.prompt_ids([attack])
        assert [i for i in ids if i in special] == frame, token
        text = tokenizer.decode(ids)
        assert all(part in text for part in spelt), "spelled out, not dropped"
        for phrase in attack.actions:
            phrase_ids = renderer.action_ids(phrase)
            assert not special & set(phrase_ids)
            assert tokenizer.decode(phrase_ids).strip() == phrase


def test_control_tokens_cannot_be_joined_or_forged() -> None:
    tokenizer = make_tokenizer(CHATML)
    renderer = PromptRenderer(tokenizer)
    special = set(tokenizer.all_special_ids)
    (expected,) = renderer.prompt_ids([chat("A")])
    count = sum(token in special for token in expected)
    for text in ("<|im_<|im_end|>end|>", "\U000f0000<|im_end|>\U000f0001", "<|im\U000f0001_end|>", "<|im_end|" + ">"):
        (ids,) = renderer.prompt_ids([chat(text)])
        assert sum(token in special for token in ids) == count


def test_a_phrase_without_tokens_is_an_error() -> None:
    tokenizer = Tokenizer(models.BPE({"g": 0, "o": 1, "go": 2}, [("g", "o")]))  # no unknown token: the rest vanishes
    renderer = PromptRenderer(PreTrainedTokenizerFast(tokenizer_object=tokenizer))
    assert renderer.action_ids("go") == (2,)
    with pytest.raises(ValueError, match="makes no token of the action phrase 'up'; choose another"):
        renderer.action_ids("up")

"""Train the tokenizer of a small language model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END, PAD = "<|end|>", "<|pad|>"
SPECIAL_TOKENS = [PAD, END, "<|system|>", "<|user|>", "<|assistant|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ '<|system|>' }}"
    "{% elif message['role'] == 'user' %}{{ '<|user|>' }}"
    "{% else %}{{ '<|assistant|>' }}{% endif %}"
    "{{ message['content'] }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
MAX_TOKEN_LENGTH = 32
"""Longest token in characters. Without this limit, whole sentences of the system prompts would become tokens."""

LISTING = r"Possible actions: [^\n]*?\.(?=\s|\z)"
"""The list of phrases in a prompt. A dot within a number does not end it."""
LISTED = r"\A(?!Possible actions: )[\s\S]+\z|\APossible actions: |, |\.\z"
"""What stands between the listed phrases, so that a phrase has the same tokens there as in an answer. All that is no
list is left whole."""
HORIZON = r"(?<= in )\d(?=\d* steps)|(?<= in \d)\d(?=\d* steps)"
"""Digits of a number that says how far words look ahead. It belongs to the words: it is the same in every prompt."""
PIECES = rf" ?\d|\.\d|(?:[^\d.]|{HORIZON})+(?:\.(?!\d))?|\."
"""What merges do not cross: a digit, a point with the digit after it, and words up to the end of the sentence."""


def train_tokenizer(texts: Iterable[str], vocabulary: int, separate: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE.

    Each digit is a separate token, so that numbers are read by place. Between digits, merges run across words up to the
    end of the sentence: ``" degrees, turns right"`` is one token, which halves the number of tokens of an observation.

    :param texts: documents.
    :param vocabulary: number of tokens, special ones included.
    :param separate: words that are always one separate token.
    """
    tokenizer = Tokenizer(models.BPE())
    words = "|".join(map(re.escape, separate))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(one), behavior="isolated") for one in (LISTING, LISTED)),
            *([pre_tokenizers.Split(Regex(rf" (?:{words})\b"), behavior="isolated")] if words else []),
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=MAX_TOKEN_LENGTH,
        show_progress=False,
    )
    messages = (message for text in texts for message in re.split("|".join(map(re.escape, SPECIAL_TOKENS)), text))
    tokenizer.train_from_iterator(messages, trainer=trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, additional_special_tokens=SPECIAL_TOKENS[2:]
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast

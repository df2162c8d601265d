"""Models of the scoring benchmark: the bundled LM, and random weights in the shapes of two small LMs from the hub.

Speed and memory do not depend on the values of the weights, so nothing is downloaded.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch as th
from gymnasium import spaces
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from lmpolicy import LMActorCriticPolicy, TextSpace, TokenSpace
from lmpolicy.lm.precision import WIDE, auto_dtype

BUNDLED, SMOLLM, QWEN = "bundled", "smollm-135m", "qwen2.5-0.5b"
MODELS = (BUNDLED, SMOLLM, QWEN)
WORDS = tuple("".join(letters) for letters in itertools.product("bdfgklmnprst", "aeiou", "bdfgklmnprst", "aeiou"))
"""3 600 words to fill prompts with; one token each in the tokenizers made here, several in that of the bundled LM."""

VOCABULARY = 20_000
"""More than the words take: training ends when each is one token."""


def save_model(name: str, folder: Path, more_text: Iterable[str] = (), layers: int | None = None) -> None:
    """Write a model with random weights and a tokenizer, as a folder from the hub has them.

    :param name: ``SMOLLM`` or ``QWEN``.
    :param folder: where to; made if it is not there.
    :param more_text: text whose words shall be one token each, too.
    :param layers: fewer layers than the model has.
    """
    options: dict[str, Any] = {"tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": None}
    with th.random.fork_rng(devices=[]):
        th.manual_seed(0)
        if name == SMOLLM:
            options |= {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "vocab_size": 49_152}
            options |= {"num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 2048}
            options["num_hidden_layers"] = layers or options["num_hidden_layers"]
            model: Any = LlamaForCausalLM(LlamaConfig(**options))
        else:
            options |= {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "vocab_size": 151_936}
            options |= {"num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 32_768}
            options["num_hidden_layers"] = layers or options["num_hidden_layers"]
            rope = {"rope_theta": 1e6, "rope_type": "default"}
            model = Qwen2ForCausalLM(Qwen2Config(**options, rope_parameters=rope))
    model.to(th.bfloat16).save_pretrained(folder)
    save_tokenizer(folder, more_text)


def save_tokenizer(folder: Path, more_text: Iterable[str]) -> None:
    """A byte-level BPE for which each word is a token, so that prompts have exactly the length they should have.

    Not a tokenizer of words: Transformers gives every Qwen2 model a byte-level BPE, whatever it comes with.
    """
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(r" ?[A-Za-z]+|\d|[^A-Za-z\d]"), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, min_frequency=0, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([f" {' '.join(WORDS)}\nObservation:\nAction:", *more_text], trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def best_dtype(name: str, device: str) -> str:
    """What ``dtype="auto"`` chooses for a model, known before it runs.

    :param name: one of ``MODELS``.
    :param device: ``"cpu"`` or ``"cuda"``.
    """
    width = WIDE - 1 if name == BUNDLED else WIDE
    return str(auto_dtype(th.device(device), th.bfloat16, width)).removeprefix("torch.")


def make_policy(
    folder: Path | None, actions: int | TokenSpace, dtype: str, device: str = "cpu", **settings: Any
) -> LMActorCriticPolicy:
    """A policy with the default adapters, at weights as in the middle of training.

    :param folder: base model; ``None`` for the bundled one.
    :param actions: number of phrases to choose from, or the space of the answers.
    :param dtype: as in ``policy_kwargs``.
    :param device: where to run.
    :param settings: further ``policy_kwargs``.
    """
    th.manual_seed(0)
    model = None if folder is None else str(folder)
    choices = spaces.Discrete(actions) if isinstance(actions, int) else actions
    space = TextSpace(1)  # the policy reads rows of any length
    settings = {"model": model, "dtype": dtype, "score_normalization": "sum", **settings}
    policy = LMActorCriticPolicy(space, choices, lambda _: 0.0, **settings)
    with th.no_grad():
        for parameter_name, parameter in policy.backbone.lm.named_parameters():
            if "lora_B" in parameter_name:  # zero at first: the gradient of lora_A would be zero, too
                parameter.normal_(std=0.02)
    # Not in training mode, in which the value head keeps the features of every forward until the optimizer steps.
    policy.set_training_mode(False)
    return policy.to(device)

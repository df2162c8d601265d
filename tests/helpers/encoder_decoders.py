"""Tiny encoder-decoder models, and the naive formulas that they are held against."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch as th
import transformers as hf
from helpers.lm_tools import CORPUS
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerFast

from lmpolicy import LMActorCriticPolicy, Prompt

COMMON: dict[str, Any] = {"vocab_size": 384}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, **COMMON}
BART = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 256,
    **COMMON,
}
MARIAN = {**BART, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": 1}
GEMMA = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "query_pre_attn_scalar": 8,
    "sliding_window": 16,
    "attn_logit_softcapping": None,
    **COMMON,
}
BERT = {
    "model_type": "bert",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    **COMMON,
}
CONFIGS: dict[str, Any] = {
    "t5": hf.T5Config(**T5, decoder_start_token_id=0),
    "flan-t5": hf.T5Config(
        **T5, decoder_start_token_id=0, feed_forward_proj="gated-gelu", tie_word_embeddings=False, num_decoder_layers=3
    ),
    "bart": hf.BartConfig(**BART),
    "mt5": hf.MT5Config(**T5, decoder_start_token_id=0),
    "umt5": hf.UMT5Config(**T5, decoder_start_token_id=0),
    "longt5": hf.LongT5Config(**T5, decoder_start_token_id=0, local_radius=8),
    "pegasus": hf.PegasusConfig(**MARIAN),
    "marian": hf.MarianConfig(**MARIAN),
    "blenderbot": hf.BlenderbotConfig(**BART, decoder_start_token_id=1),
    "t5gemma": hf.T5GemmaConfig(encoder=GEMMA, decoder=GEMMA, **COMMON, decoder_start_token_id=2),
    "m2m100": hf.M2M100Config(**BART, encoder_layerdrop=0.9, decoder_layerdrop=0.9),
    "switch": hf.SwitchTransformersConfig(**T5, num_experts=4, expert_capacity=512, decoder_start_token_id=0),
    "bert2bert": hf.EncoderDecoderConfig(
        encoder=BERT,
        decoder={**BERT, "is_decoder": True, "add_cross_attention": True},
        decoder_start_token_id=0,
        pad_token_id=0,
    ),
}
"""Families by name. flan-t5: gated, untied, and more layers in the decoder than in the encoder."""
PLAIN = {"bert2bert"}
"""Their decoders have positions that nothing finds, so that each phrase is a sequence of its own."""


def save_tokenizer(folder: Path, bos: bool) -> None:
    """Save a tokenizer that ends every text with a token of its own, as those of T5 and BART do.

    :param folder: where to; made if it is not there.
    :param bos: whether every text also begins with one, as with BART. If not, it writes a space before each text, as
        that of T5 does, and knows no line breaks.
    """
    tokenizer = Tokenizer(models.Unigram() if not bos else models.BPE())
    special = ["<pad>", "</s>", "<unk>"] if not bos else ["<s>", "<pad>", "</s>", "<unk>"]
    if bos:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer: Any = trainers.BpeTrainer(
            vocab_size=380, initial_alphabet=alphabet, special_tokens=special, show_progress=False, min_frequency=1
        )
    else:
        tokenizer.normalizer = normalizers.Replace("\n", " ")
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=300,
            special_tokens=special,
            unk_token="<unk>",
            show_progress=False,
            initial_alphabet=list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!?.,:-"),
        )
    tokenizer.train_from_iterator([CORPUS], trainer)
    ends = [(token, tokenizer.token_to_id(token)) for token in (("<s>", "</s>") if bos else ("</s>",))]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>" if bos else "$A </s>", special_tokens=ends
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>" if bos else None,
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
    ).save_pretrained(folder)


def save_model(folder: Path, name: str) -> str:
    """Save one of :data:`CONFIGS`, randomly initialised with large weights, so that nothing is near uniform."""
    with th.random.fork_rng(devices=[]):
        th.manual_seed(0)
        model: Any = AutoModelForSeq2SeqLM.from_config(CONFIGS[name])
        if name == "flan-t5":  # T5Config ties them, whatever it is told
            model.lm_head.weight = th.nn.Parameter(model.lm_head.weight.detach().clone())
        for parameter in model.parameters():
            parameter.data = parameter.data.clamp(-0.5, 0.5) + 0.13 * th.randn_like(parameter)
    model.save_pretrained(folder)
    save_tokenizer(folder, bos=name in ("bart", "blenderbot"))
    return str(folder)


def naive_scores(policy: LMActorCriticPolicy, prompt: Prompt) -> th.Tensor:
    """Scores of a prompt's phrases, with one pass of encoder and decoder per phrase; ``(K,)``."""
    lm, renderer, start = policy.backbone.lm, policy.backbone.renderer, policy.backbone.answer_start
    assert start is not None
    (tokens,) = renderer.prompt_ids([prompt])
    scores = []
    for phrase in prompt.actions:
        ids = list(renderer.action_ids(phrase))
        out = lm(input_ids=th.tensor([tokens]), decoder_input_ids=th.tensor([[*start, *ids]]), use_cache=False)
        log_probs = out.logits[0, len(start) - 1 : -1].float().log_softmax(-1)
        scores.append(log_probs.gather(1, th.tensor(ids)[:, None]).sum())
    return th.stack(scores)


def naive_value(policy: LMActorCriticPolicy, prompt: Prompt) -> th.Tensor:
    """Value of a prompt from the states of its encoder, alone in its batch; scalar."""
    backbone = policy.backbone
    lm: Any = backbone.lm.get_base_model() if hasattr(backbone.lm, "get_base_model") else backbone.lm
    (tokens,) = backbone.renderer.prompt_ids([prompt])
    states = lm.get_encoder()(input_ids=th.tensor([tokens])).last_hidden_state[0]
    index = th.arange(len(tokens))[None]
    states = states if backbone.value_gradient else states.detach()
    return backbone.value_head(states, 0, index, th.ones_like(index, dtype=th.bool), index[:, -1])[0]


def naive_batch(policy: LMActorCriticPolicy, prompts: Sequence[Prompt]) -> tuple[th.Tensor, th.Tensor]:
    """Log-probabilities ``(B, K)``, -inf where illegal, and values ``(B,)``, row by row."""
    n_actions = int(policy.action_space.n)  # type: ignore[attr-defined]
    rows = []
    for one in prompts:
        log_probs = naive_scores(policy, one).log_softmax(-1)
        rows.append(th.nn.functional.pad(log_probs, (0, n_actions - len(log_probs)), value=-th.inf))
    return th.stack(rows), th.stack([naive_value(policy, one) for one in prompts])

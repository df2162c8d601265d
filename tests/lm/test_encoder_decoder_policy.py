"""A policy with an encoder-decoder model: prompts, settings, learning, checkpoints, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch as th
import transformers as hf
from helpers import encoder_decoders
from helpers.encoder_decoders import BART, BERT, naive_scores, save_model, save_tokenizer
from helpers.lm_tools import ROW_BYTES, SHARED, UNSHARED, encode, make_policy, prompt, scores_of
from helpers.policy_tools import corridor, ppo
from helpers.toy_envs import Corridor, CorridorTask
from peft import LoraConfig, PeftModelForSeq2SeqLM, get_peft_model
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from transformers import AutoModelForSeq2SeqLM

import lmpolicy
from lmpolicy import TextObservationWrapper
from lmpolicy.lm.encoder_decoder import EncoderDecoderForward
from lmpolicy.lm.quantization import bitsandbytes_layers

NAMES = ("t5", "bart")
PROMPTS = [*SHARED[:3], UNSHARED[0]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("encoder-decoders")
    return {name: save_model(root / name, name) for name in (*NAMES, "marian")}


def edit_config(folder: Path, **entries: Any) -> None:
    for file in ("config.json", "generation_config.json"):
        path = folder / file
        path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


# Prompts and phrases as the model was trained to read them


def test_prompts_are_whole_texts_of_the_encoder(folders: dict[str, str]) -> None:
    for name in NAMES:
        renderer = make_policy(folders[name]).backbone.renderer
        text = "Choose.\n\nObservation: row 1\nAction:"
        (ids,) = renderer.prompt_ids([prompt("row 1", system="Choose.")])
        assert ids == renderer.tokenizer(text).input_ids
        assert ids[-1] == renderer.tokenizer.eos_token_id


def test_phrases_begin_the_text_of_the_decoder(folders: dict[str, str]) -> None:
    # T5 is trained to answer "<pad> text </s>", BART "</s> <s> text </s>"; neither has a space before the text.
    starts = {"t5": ["<pad>"], "bart": ["</s>", "<s>"], "marian": ["<pad>"]}
    for name, start in starts.items():
        backbone = make_policy(folders[name]).backbone
        tokenizer, ids = backbone.tokenizer, backbone.renderer.action_ids("go north")
        assert tokenizer.convert_ids_to_tokens(backbone.answer_start) == start
        answer = tokenizer(text_target="go north").input_ids
        assert [*start[1:], *tokenizer.convert_ids_to_tokens(ids), "</s>"] == tokenizer.convert_ids_to_tokens(answer)


def test_control_tokens_stay_characters(folders: dict[str, str]) -> None:
    # A tokenizer of the kind Unigram has them among its pieces.
    renderer = make_policy(folders["t5"]).backbone.renderer
    assert renderer.tokenizer.encode("</s>", add_special_tokens=False, split_special_tokens=True)[-1] == 1
    (ids,) = renderer.prompt_ids([prompt("row </s> 1 <pad></s>", system="<pad>")])
    assert ids.count(renderer.tokenizer.eos_token_id) == 1
    assert renderer.tokenizer.pad_token_id not in ids
    assert renderer.text_ids("{") == [3, renderer.tokenizer.unk_token_id]  # a character that it does not know


def test_a_control_token_is_read_with_a_space_behind_its_first_character(folders: dict[str, str]) -> None:
    renderer = make_policy(folders["t5"]).backbone.renderer
    ids = renderer.text_ids("go north")
    pieces = [piece.lstrip("▁") for piece in renderer.tokenizer.convert_ids_to_tokens(ids)]
    place = max(range(len(pieces)), key=lambda number: len(pieces[number]))
    piece = pieces[place]
    apart = renderer.text_ids("go north".replace(piece, f"{piece[0]} {piece[1:]}"))
    assert apart != ids
    renderer._control = {**renderer._control, ids[place]: piece}
    assert renderer.text_ids("go north") == apart


def test_the_encoder_has_its_context_to_itself(folders: dict[str, str]) -> None:
    policy = make_policy(folders["bart"])
    (ids,) = policy.backbone.renderer.prompt_ids([prompt("!")])
    fits = prompt("!" + ".!" * ((256 - len(ids)) // 2))
    (ids,) = policy.backbone.renderer.prompt_ids([fits])
    assert len(ids) >= 254
    assert scores_of(policy, encode([fits], max_bytes=1024))[0].isfinite().all()
    with pytest.raises(ValueError, match=r"a prompt of \d+ tokens, but .* reads at most 256"):
        scores_of(policy, encode([prompt("!" + ".!" * 128)], max_bytes=1024))
    assert make_policy(folders["t5"]).backbone.context_length is None  # its positions are relative


def of_lengths(kind: str, encoder: int, decoder: int) -> Any:
    """Config of a model whose encoder and decoder have tables of positions of these lengths."""
    side = {**BERT, "model_type": kind, "pad_token_id": 0}
    return hf.EncoderDecoderConfig(
        encoder={**side, "max_position_embeddings": encoder},
        decoder={**side, "max_position_embeddings": decoder, "is_decoder": True, "add_cross_attention": True},
        decoder_start_token_id=0,
        pad_token_id=0,
    )


LED = hf.LEDConfig(
    **{name: size for name, size in BART.items() if name != "max_position_embeddings"},
    max_encoder_position_embeddings=192,
    max_decoder_position_embeddings=16,
    attention_window=16,
)


@pytest.mark.parametrize(
    ("config", "longest"),
    [
        (of_lengths("bert", 192, 256), 192),
        (of_lengths("bert", 256, 16), 256),
        (of_lengths("roberta", 193, 17), 192),
        (LED, 192),
    ],
    ids=["short-encoder", "short-decoder", "roberta", "led"],
)
def test_encoder_and_decoder_have_a_limit_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Any, longest: int
) -> None:
    monkeypatch.setitem(encoder_decoders.CONFIGS, "of lengths", config)
    policy = make_policy(save_model(tmp_path, "of lengths"))
    ids = policy.backbone.renderer.prompt_ids
    texts = [(".!" * longest)[:number] for number in range(1, longest)]
    lengths = [len(ids([prompt(text)])[0]) for text in texts]
    fits, longer = (prompt(texts[lengths.index(length)]) for length in (longest, longest + 1))
    assert scores_of(policy, encode([fits], max_bytes=1024))[0].isfinite().all()
    with pytest.raises(ValueError, match=rf"a prompt of {longest + 1} tokens, but .* reads at most {longest}: pass"):
        scores_of(policy, encode([longer], max_bytes=1024))
    if policy.backbone.answer_limit == 16:
        with pytest.raises(
            ValueError, match=r"a phrase take \d+ tokens, but .* reads at most 16: shorten .*action_texts"
        ):
            scores_of(policy, encode([prompt("!", ("go" + " go" * 15, "left"))], max_bytes=1024))


# What is refused


def test_writing_is_refused(folders: dict[str, str]) -> None:
    options: dict[str, Any] = {"max_prompt_bytes": ROW_BYTES, "action_mode": "generate", "tokenizer": folders["t5"]}
    env = TextObservationWrapper(Corridor(), CorridorTask(), **options)
    with pytest.raises(ValueError, match=r'chooses among phrases but does not write.*action_mode="score"'):
        ppo(folders["t5"], env)


def test_last_layers_are_refused(folders: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"last_layers is for causal LMs.*name layers in target_modules"):
        make_policy(folders["t5"], lora={"r": 4, "last_layers": 1})
    named = make_policy(folders["t5"], lora={"r": 4, "target_modules": r".*decoder.*\.(q|k|v|o)"})  # the remedy
    learning = [name for name, weight in named.backbone.lm.named_parameters() if weight.requires_grad]
    assert learning
    assert all("decoder" in name for name in learning)


def test_a_config_without_a_start_token(tmp_path: Path) -> None:
    save_model(tmp_path, "t5")
    edit_config(tmp_path, decoder_start_token_id=None)
    with pytest.raises(OSError, match=r"does not say with which token its decoder starts.*add decoder_start_token_id"):
        make_policy(tmp_path)


# Settings


def test_both_sides_get_adapters(folders: dict[str, str]) -> None:
    for name in NAMES:
        policy = make_policy(folders[name])
        learning = [name for name, weight in policy.backbone.lm.named_parameters() if weight.requires_grad]
        for side in ("encoder.", "decoder."):
            assert sum(side in one for one in learning) > 8
        assert not any("lm_head" in one for one in learning)
        assert isinstance(policy.backbone.lm, PeftModelForSeq2SeqLM)
        assert policy.backbone.lm.peft_config["default"].task_type == "SEQ_2_SEQ_LM"


@pytest.mark.parametrize("quantization", ["4bit", "8bit"])
def test_quantised(folders: dict[str, str], quantization: str) -> None:
    pytest.importorskip("bitsandbytes")
    policy = make_policy(folders["t5"], quantization=quantization)
    assert bitsandbytes_layers(policy.backbone.lm)
    forward = policy.actor.scorer.forward
    assert isinstance(forward, EncoderDecoderForward)
    assert forward.tree
    scores, _ = scores_of(policy, encode(PROMPTS))
    for row, one in zip(scores, PROMPTS, strict=True):
        expected = naive_scores(policy, one)
        th.testing.assert_close(row[: len(one.actions)], expected, rtol=1e-4, atol=1e-3)


def test_starts_from_an_adapter_of_peft(folders: dict[str, str], tmp_path: Path) -> None:
    base = AutoModelForSeq2SeqLM.from_pretrained(folders["t5"])
    config = LoraConfig(task_type="SEQ_2_SEQ_LM", r=2, target_modules=["q", "v"], init_lora_weights=False)
    adapted = get_peft_model(base, config).eval()
    adapted.save_pretrained(tmp_path)
    lm: Any = ppo(folders["t5"], corridor(), {"lora": {}, "adapter": str(tmp_path)}).policy.backbone.lm
    ids, start = th.tensor([[4, 5, 6, 1]]), th.tensor([[0, 7, 8]])
    with th.no_grad():
        expected = adapted(input_ids=ids, decoder_input_ids=start).logits
        th.testing.assert_close(lm.eval()(input_ids=ids, decoder_input_ids=start).logits, expected)


@pytest.mark.parametrize("name", NAMES)
def test_exported(folders: dict[str, str], tmp_path: Path, name: str) -> None:
    policy = make_policy(folders[name])
    policy.export(tmp_path / "out")
    loaded: Any = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    assert not any("lora" in one for one, _ in loaded.named_parameters())
    ids, start = th.tensor([[4, 5, 6, 1]]), th.tensor([[0, 7, 8]])
    with th.no_grad():
        expected = policy.backbone.lm.eval()(input_ids=ids, decoder_input_ids=start).logits
        th.testing.assert_close(loaded(input_ids=ids, decoder_input_ids=start).logits, expected, rtol=0, atol=1e-4)
        again = make_policy(tmp_path / "out", lora="frozen")
        rows = encode(PROMPTS)
        th.testing.assert_close(scores_of(again, rows)[0], scores_of(policy, rows)[0], rtol=0, atol=1e-4)
    assert "pipeline_tag: text2text-generation" in (tmp_path / "out" / "README.md").read_text()


# Training


def learner(model: str, **options: Any) -> PPO:
    env = make_vec_env(corridor, n_envs=4, seed=0)
    options = {"n_steps": 16, "batch_size": 64, "n_epochs": 4, "learning_rate": 3e-3, "gamma": 0.9, **options}
    return ppo(model, env, {"lora": {"r": 8}}, **options)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_moves_without_a_learning_rate(folders: dict[str, str], name: str) -> None:
    model = learner(folders[name], learning_rate=0.0)
    model.learn(64)
    assert abs(model.logger.name_to_value["train/approx_kl"]) <= 1e-6
    assert model.logger.name_to_value["train/clip_fraction"] == 0


@pytest.mark.parametrize("name", NAMES)
def test_comes_back_from_a_checkpoint(folders: dict[str, str], tmp_path: Path, name: str) -> None:
    model = learner(folders[name], learning_rate=1e-2).learn(64)
    model.save(tmp_path / "model")
    rows = encode(PROMPTS[1:], max_bytes=512)
    safely = lmpolicy.load(tmp_path / "model.zip", model=folders[name], device="cpu")
    for loaded in (PPO.load(tmp_path / "model", device="cpu"), safely):
        with th.no_grad():
            for one, other in zip(*(answers(learnt.policy, rows) for learnt in (model, loaded)), strict=True):
                assert th.equal(one, other)


def answers(policy: Any, rows: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
    return policy.get_distribution(rows).distribution.logits, policy.predict_values(rows)


def test_a_checkpoint_is_refused_by_another_base(folders: dict[str, str], tmp_path: Path) -> None:
    learner(folders["t5"]).save(tmp_path / "model")
    other = tmp_path / "other"
    save_model(other, "t5")
    save_tokenizer(other, bos=False)
    edit_config(other, decoder_start_token_id=1)
    with pytest.raises(ValueError, match="decoder_start_token_id of its config"):
        PPO.load(
            tmp_path / "model",
            device="cpu",
            custom_objects={"policy_kwargs": {"model": str(other), "lora": {"r": 8}, "score_normalization": "token"}},
        )

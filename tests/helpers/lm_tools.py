"""Tiny language models, prompts and the naive formulas that the model side is held against."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    GPT2Config,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from lmpolicy import LMActorCriticPolicy, Prompt, TextSpace
from lmpolicy.lm.phrase_actor import PhraseActor
from lmpolicy.lm.queries import Query
from lmpolicy.lm.scorer import ILLEGAL
from lmpolicy.text.spaces import row_keys

CHATML = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
CORPUS = (
    "You play a game. Choose the best action. Possible actions: left, right, up, down, stay, go north, go south, hit, "
    "stick, pick up, drop off. Observation: the cart is at 0.123 and moves at -0.456, the pole leans by 7.89 degrees. "
    "Your total is 10, the dealer shows 2. You are in row 1, column 3 of the grid. Action: Holes: push the car uphill. "
)
CONTEXT = 1024
MODELS = ("llama", "qwen2", "gpt2", "llama-tied")
"""llama: GQA, chat template, bos. qwen2: chat template, no bos. gpt2: no template, dropout 0.1. llama-tied: neither."""
ROW_BYTES = 512
AS_THE_LM_SAYS: dict[str, Any] = {"score_normalization": "sum"}
"""Settings with which a phrase is as likely as the language model says, as the naive formulas have it by default."""


def save_tokenizer(folder: Path, template: str | None, bos: bool) -> None:
    """Save a byte-level BPE tokenizer whose id 0 is an ordinary character, the exclamation mark.

    :param folder: where to; made if it is not there.
    :param template: the chat template; None for none.
    :param bos: whether every text begins with a token of its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in _tokenizer_files(template, bos).items():
        (folder / name).write_bytes(content)


@functools.cache
def _tokenizer_files(template: str | None, bos: bool) -> dict[str, bytes]:
    """Contents of the files of a tokenizer; trained once in a run of the tests."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=380, initial_alphabet=alphabet, show_progress=False, min_frequency=1)
    tokenizer.train_from_iterator([CORPUS], trainer)
    assert tokenizer.token_to_id("!") == 0
    tokenizer.add_special_tokens(["<|start|>", "<|end|>", "<s>"])
    if bos:
        start = ("<s>", tokenizer.token_to_id("<s>"))
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[start])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>" if bos else None, eos_token="<|end|>", pad_token="<|end|>"
    )
    fast.chat_template = template
    with tempfile.TemporaryDirectory() as folder:
        fast.save_pretrained(folder)
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def save_model(folder: Path, name: str, seed: int = 0) -> None:
    """Save one of :data:`MODELS`, randomly initialised with large weights, so that nothing is near uniform."""
    common: dict[str, Any] = {"vocab_size": 384, "bos_token_id": None, "eos_token_id": None, "initializer_range": 0.15}
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": CONTEXT}
    config: PreTrainedConfig
    if name == "gpt2":
        config = GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=CONTEXT, **common)
    elif name == "qwen2":
        config = Qwen2Config(**sizes, **heads, **common)
    else:
        config = LlamaConfig(**sizes, **heads, **common, tie_word_embeddings=name == "llama-tied")
    with th.random.fork_rng(devices=[]):
        th.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("bias"):
                th.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder)
    save_tokenizer(folder, CHATML if name in ("llama", "qwen2") else None, bos=name == "llama")


def put_into_hub_cache(folder: Path | str, cache: Path, hub_id: str) -> None:
    """Copy a folder to where the hub's client keeps what it has downloaded under this id.

    :param folder: what the hub would have.
    :param cache: folder of the cache.
    :param hub_id: owner and name.
    """
    repository = cache / f"models--{hub_id.replace('/', '--')}"
    shutil.copytree(folder, repository / "snapshots" / "abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")


def make_policy(
    model: Path | str, n_actions: int = 4, attention: str = "sdpa", seed: int = 0, **settings: Any
) -> LMActorCriticPolicy:
    """A policy without a learner; adapters and value head randomised, so that no gradient is trivially zero."""
    th.manual_seed(seed)
    space = settings.pop("space", None) or TextSpace(ROW_BYTES)
    actions = settings.pop("action_space", None) or spaces.Discrete(n_actions)
    settings = {**AS_THE_LM_SAYS, "lora": {"r": 4}, **settings}
    policy = LMActorCriticPolicy(space, actions, lambda _: 1e-2, model=str(model), **settings)
    lm: Any = policy.backbone.lm
    (lm.get_base_model() if hasattr(lm, "get_base_model") else lm).set_attn_implementation(attention)
    with th.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name or "value_head" in name:
                parameter.normal_(std=0.2)
    return policy


def prompt(text: str, actions: Sequence[str] = ("left", "right"), system: str = "") -> Prompt:
    """A prompt of one turn of the user, after what the system says, if anything."""
    messages = [("system", system)] if system else []
    return Prompt((*messages, ("user", text)), tuple(actions))


SYSTEM = "You play a game. Choose the best action."
SHARED = [
    prompt("row 1, column 3", ("left", "right", "go north", "go south"), SYSTEM),
    prompt("row 1, column 3 of the grid. Holes: none!", ("go north", "go north now", "go"), SYSTEM),
    prompt("!", ("!", "!!", "stay!"), SYSTEM),  # token id 0, in prompt and phrases
    prompt("row 1, column 3", ("left", "right"), SYSTEM),  # the first prompt with other phrases
    prompt("row 1, column 3", ("left", "right", "go north", "go south"), SYSTEM),  # the first row again
    Prompt(
        (("system", SYSTEM), ("user", "row 2"), ("assistant", "left"), ("user", "row 3")), ("pick up the box", "left")
    ),
]
UNSHARED = [
    Prompt((("user", "!! Holes"),), ("left", "pick up, then drop off", "pick up")),
    Prompt((("system", "You push"), ("user", "7.89 degrees")), ("hit", "stick")),
    Prompt((("user", "the cart is at 0.123 and moves at -0.456"),), ("stay",)),
]


def encode(prompts: Iterable[Prompt], max_bytes: int = ROW_BYTES) -> th.Tensor:
    """Rows as SB3 hands them to the policy, uint8 ``(B, max_bytes)``."""
    space = TextSpace(max_bytes)
    return th.from_numpy(np.stack([space.encode(prompt.to_json()) for prompt in prompts]))


def scores_of(policy: LMActorCriticPolicy, rows: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
    """Scores of phrases ``(B, K)`` and values ``(B,)`` of a policy that chooses."""
    assert isinstance(policy.actor, PhraseActor)
    return policy.actor.scores(row_keys(rows.numpy()))


def naive_scores(policy: LMActorCriticPolicy, prompt: Prompt, normalization: str, temperature: float) -> th.Tensor:
    """Scores of a prompt's phrases, one plain forward per phrase: no mask, no cache, no padding; ``(K,)``."""
    lm, renderer = policy.backbone.lm, policy.backbone.renderer
    (tokens,) = renderer.prompt_ids([prompt])
    scores = []
    for phrase in prompt.actions:
        ids = list(renderer.action_ids(phrase))
        log_probs = lm(input_ids=th.tensor([tokens + ids]), use_cache=False).logits[0].float().log_softmax(-1)
        total = sum(log_probs[len(tokens) + j - 1, token] for j, token in enumerate(ids))
        divisor = {"sum": 1, "token": len(ids), "word": len(phrase.split())}[normalization]
        scores.append(total / divisor / temperature)
    return th.stack(scores)


def naive_value(policy: LMActorCriticPolicy, prompt: Prompt) -> th.Tensor:
    """Value of a prompt, alone in its batch; scalar."""
    backbone = policy.backbone
    (tokens,) = backbone.renderer.prompt_ids([prompt])
    states = backbone.lm(input_ids=th.tensor([tokens]), use_cache=False, output_hidden_states=True).hidden_states[-1]
    states = states.float() if backbone.value_gradient else states.float().detach()
    index = th.arange(len(tokens))[None]
    return backbone.value_head(states[0], 0, index, th.ones_like(index, dtype=th.bool), index[:, -1])[0]


def naive_batch(
    policy: LMActorCriticPolicy, prompts: Sequence[Prompt], normalization: str = "sum", temperature: float = 1.0
) -> tuple[th.Tensor, th.Tensor]:
    """Log-probabilities ``(B, K)``, -inf where illegal, and values ``(B,)``, row by row."""
    n_actions = int(policy.action_space.n)  # type: ignore[attr-defined]
    rows = []
    for one in prompts:
        log_probs = naive_scores(policy, one, normalization, temperature).log_softmax(-1)
        rows.append(th.nn.functional.pad(log_probs, (0, n_actions - len(log_probs)), value=-th.inf))
    return th.stack(rows), th.stack([naive_value(policy, one) for one in prompts])


def gradients(policy: LMActorCriticPolicy, loss: th.Tensor) -> dict[str, th.Tensor]:
    """Gradient of a scalar with respect to every trainable parameter, by name; zeros where there is none."""
    named = {name: p for name, p in policy.named_parameters() if p.requires_grad}
    found = th.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {
        name: th.zeros_like(parameter) if gradient is None else gradient
        for (name, parameter), gradient in zip(named.items(), found, strict=True)
    }


def largest_difference(first: dict[str, th.Tensor], second: dict[str, th.Tensor]) -> float:
    """Between two sets of gradients, over all parameters."""
    assert first.keys() == second.keys()
    return max(float((first[name].double() - second[name].double()).abs().max()) for name in first)


def scored_batch(
    policy: LMActorCriticPolicy, prompts: list[Prompt], max_bytes: int = ROW_BYTES
) -> tuple[th.Tensor, th.Tensor]:
    """Log-probabilities ``(B, K)``, -inf where illegal, and values ``(B,)``, as the policy computes them."""
    scores, values = scores_of(policy, encode(prompts, max_bytes))
    return scores.log_softmax(-1).masked_fill(scores == ILLEGAL, -th.inf), values


def weighted(log_probs: th.Tensor, values: th.Tensor) -> th.Tensor:
    """A scalar in which every finite entry has a weight of its own."""
    weights = th.sin(1 + 3 * th.arange(log_probs.numel())).reshape(log_probs.shape)
    finite = log_probs.masked_fill(log_probs.isinf(), 0)
    return (weights * finite).sum() + (th.cos(th.arange(len(values))) * values).sum()


def assert_same(
    policy: LMActorCriticPolicy, prompts: list[Prompt], naive: LMActorCriticPolicy | None = None, **options: Any
) -> None:
    """Scores, values and the gradient of both equal the naive ones.

    :param policy: what is tested.
    :param prompts: any number.
    :param naive: a policy of the same weights that the naive formulas are computed with; None: ``policy`` itself.
    :param options: of :func:`naive_batch`.
    """
    naive = naive or policy
    log_probs, values = scored_batch(policy, prompts)
    expected, expected_values = naive_batch(naive, prompts, **options)
    assert th.equal(log_probs.isinf(), expected.isinf())
    finite = ~expected.isinf()
    th.testing.assert_close(log_probs[finite], expected[finite], rtol=1e-6, atol=1e-5)
    th.testing.assert_close(values, expected_values, rtol=1e-6, atol=1e-5)
    found = gradients(policy, weighted(log_probs, values))
    wanted = gradients(naive, weighted(expected, expected_values))
    largest = max(float(gradient.abs().max()) for gradient in wanted.values())
    assert largest > 0.01
    assert largest_difference(found, wanted) <= 1e-5 * max(1, largest)


def chat(*turns: str, system: str = "Choose the best action.", actions: Sequence[str] = ("go left", "up")) -> Prompt:
    """A prompt whose turns are the user's and the assistant's by turns."""
    messages = [("user" if index % 2 == 0 else "assistant", turn) for index, turn in enumerate(turns)]
    return Prompt((*([("system", system)] if system else []), *messages), tuple(actions))


def count_rows(policy: LMActorCriticPolicy) -> list[int]:
    """How many prompts each call of the model's forward over rows scored."""
    rows: list[int] = []
    original = policy.actor.scorer._score

    def score(queries: Sequence[Query]) -> Any:
        rows.append(len(queries))
        return original(queries)

    policy.actor.scorer._score = score  # type: ignore[method-assign]
    return rows

"""Tell base models apart: by their weights, config, tokenizer and chat template."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch as th
import transformers
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from lmpolicy.lm.model_settings import to_json
from lmpolicy.text.spaces import tokenizer_fingerprint

ROWS, COLUMNS = 32, 4096
"""Size of the table of 8-byte words that is digested at a time. It fits into the cache of a core."""
LOW_HALF = (1 << 32) - 1
WEIGHTS = "its weights"
"""Name of the weights among what differs."""
UNRELATED = frozenset(
    (
        "architectures",
        "bos_token_id",
        "chunk_size_feed_forward",
        "dtype",
        "eos_token_id",
        "id2label",
        "initializer_range",
        "label2id",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "problem_type",
        "quantization_config",
        "return_dict",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    )
)
"""Entries of a config that do not change what a model computes, or show in its weights."""
UNRELATED_PARTS = ("dropout", "pdrop", "jitter")
"""Parts of names of such entries: the policy sets them to 0."""
SAMPLES = (
    "You are in row 1, column 3 of the 4x4 grid. Holes: none! What do you do?",
    "velocity -0.456, angle 7.89e-05, 12345 + 67 = 12412, 50 % of $3.00",
    "  two  spaces,\ttab,\nline\n\nbreaks and Ünïcödé: Straße, naïve, 日本語, привет, 🎲",
    'def go(north): return {"Action": north[0] ** 2} # don\'t CAPITALISE THIS',
)
"""Texts whose token ids show how a tokenizer splits words."""


@dataclass(frozen=True)
class Fingerprint:
    """Say what a base model is.

    :param weights: digest of all weights, by :func:`weights_digest`.
    :param tokenizer: digest of the vocabulary, and of how the tokenizer splits texts.
    :param chat_template: digest of the chat template.
    :param config: entries of the config that change what the model computes.
    :param transformers: version of Transformers that read the config.
    """

    weights: str
    tokenizer: str
    chat_template: str
    config: Mapping[str, Any]
    transformers: str

    @classmethod
    def of(cls, model: Any, tokenizer: Any) -> Fingerprint:
        """Take the fingerprint of a model.

        :param model: base model as loaded, before its weights are cast or its dropout is removed.
        :param tokenizer: tokenizer of the model.
        """
        split = [list(tokenizer.encode(text, split_special_tokens=True)) for text in SAMPLES]
        vocabulary = [tokenizer_fingerprint(tokenizer), tokenizer.eos_token_id, split]
        config = _related(to_json_or_text(model.config.to_dict()))
        return cls(
            weights_digest(model),
            _digest(vocabulary),
            _digest(tokenizer.chat_template),
            config,
            transformers.__version__,
        )

    def differences(self, other: Fingerprint) -> list[str]:
        """Name the parts in which two fingerprints differ, in words.

        :param other: fingerprint of the model that the weights were trained on.
        """
        parts = {"weights": WEIGHTS, "tokenizer": "its tokenizer", "chat_template": "its chat template"}
        found = [words for name, words in parts.items() if getattr(self, name) != getattr(other, name)]
        # Versions of Transformers know different entries of a config, so only what both know is compared.
        same_version = self.transformers == other.transformers
        return found + _config_differences(self.config, other.config, same_version)

    def to_json(self) -> dict[str, Any]:
        """Return the fingerprint as values for JSON."""
        return asdict(self)


def _config_differences(mine: Mapping[str, Any], saved: Mapping[str, Any], all_entries: bool) -> list[str]:
    """Say which entries of two configs differ."""
    names = sorted({*mine, *saved} if all_entries else {*mine} & {*saved})
    return [
        f"{name} of its config ({mine.get(name)!r} here, {saved.get(name)!r} in the checkpoint)"
        for name in names
        if mine.get(name) != saved.get(name)
    ]


def _related(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a config that change what a model computes, those of its parts included."""
    kept = {
        name: value
        for name, value in config.items()
        if name not in UNRELATED and not name.startswith("_") and not any(part in name for part in UNRELATED_PARTS)
    }
    return {name: _related(value) if isinstance(value, Mapping) else value for name, value in kept.items()}


def to_json_or_text(config: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a config as values for JSON; what JSON cannot write becomes its text.

    :param config: entries of a config.
    """
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            found[str(name)] = to_json_or_text(value)
            continue
        try:
            found[str(name)] = to_json(value, str(name))
        except (TypeError, ValueError):  # an object of a model's own code
            found[str(name)] = str(value)
    return found


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


def weights_digest(model: nn.Module) -> str:
    """Compute a digest of a model's weights.

    It covers the names, shapes, dtypes and values, and the place of each value. Every weight is read once, at memory
    speed, so billions of parameters take seconds.

    :param model: base model as loaded.
    :return: 32 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        _add(digest, name, tensor.detach())
    return digest.hexdigest()[:32]


def _add(digest: hashlib._Hash, name: str, tensor: th.Tensor) -> None:
    """Add a tensor to a digest; a tensor that is made of others, as torchao's are, by its parts."""
    if is_traceable_wrapper_subclass(tensor):
        parts, _ = tensor.__tensor_flatten__()
        for part in parts:
            _add(digest, f"{name}.{part}", getattr(tensor, part))
        return
    digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} ".encode())
    flat = tensor.contiguous().flatten()
    if flat.storage_offset():  # bytes can only be read as words from the beginning of a storage
        flat = flat.clone()
    data = flat.view(th.uint8)
    words = len(data) // 8
    digest.update(_mixed(data[: 8 * words].view(th.int64)).cpu().numpy().tobytes())
    digest.update(data[8 * words :].cpu().numpy().tobytes())


def _mixed(words: th.Tensor) -> th.Tensor:
    """Mix 8-byte words into one row, ``(COLUMNS,)``, in which each word counts by its place.

    A column is a sum of words times odd random factors, which no single change leaves as it was. The upper half of a
    word is mixed into its lower half first, because factors carry changes to higher bits only.
    """
    factors, carry = _factors()
    factors = factors.to(words.device)
    total, space = words.new_zeros(COLUMNS), words.new_empty(ROWS * COLUMNS)
    for table in words.split(ROWS * COLUMNS):
        rows = len(table) // COLUMNS
        mixed = th.bitwise_right_shift(table, 32, out=space[: len(table)])
        mixed.bitwise_and_(LOW_HALF).bitwise_xor_(table)
        whole, rest = mixed[: rows * COLUMNS].view(rows, COLUMNS), mixed[rows * COLUMNS :]
        total.mul_(carry).add_(whole.mul_(factors[:rows, None]).sum(dim=0))
        total[: len(rest)] += rest * factors[rows]
    return total


@cache
def _factors() -> tuple[th.Tensor, int]:
    """Return odd random factors for the rows of a table, ``(ROWS + 1,)``, and for all tables before it."""
    digests = (hashlib.sha256(str(row).encode()).digest()[:8] for row in range(ROWS + 2))
    *factors, carry = (int.from_bytes(one, "little", signed=True) | 1 for one in digests)
    return th.tensor(factors), carry


def digest_of_version_1(model: nn.Module) -> bytes:
    """Compute the digest that checkpoints of version 0.1.0 hold: 16 bytes.

    It does not see the places of most values.

    :param model: base model as loaded.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        _add_as_version_1(digest, name, tensor.detach())
    return digest.digest()[:16]


def _add_as_version_1(digest: hashlib._Hash, name: str, tensor: th.Tensor) -> None:
    if is_traceable_wrapper_subclass(tensor):
        parts, _ = tensor.__tensor_flatten__()
        for part in parts:
            _add_as_version_1(digest, f"{name}.{part}", getattr(tensor, part))
        return
    flat = tensor.cpu().contiguous().flatten()
    bits = flat.view({1: th.uint8, 2: th.int16, 4: th.int32, 8: th.int64}[flat.element_size()])
    sample = bits[:: max(1, len(bits) // 64)].tolist()
    digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {int(bits.sum(dtype=th.int64))} {sample}".encode())

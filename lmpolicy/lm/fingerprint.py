"""Tell base models apart by a digest of their weights."""

from __future__ import annotations

import hashlib

import torch as th
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


def fingerprint(model: nn.Module) -> th.Tensor:
    """Compute a digest of a model's weights.

    It covers the names, shapes and dtypes, the sum of each tensor's bits, and a sample of its values. Every weight is
    read once, at memory speed, so billions of parameters take seconds.

    :param model: base model as loaded.
    :return: uint8 ``(16,)``.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        _digest(digest, name, tensor.detach())
    return th.tensor(list(digest.digest()[:16]), dtype=th.uint8)


def _digest(digest: hashlib._Hash, name: str, tensor: th.Tensor) -> None:
    """Add a tensor to a digest; a tensor that is made of others, as torchao's are, by its parts."""
    if is_traceable_wrapper_subclass(tensor):
        parts, _ = tensor.__tensor_flatten__()
        for part in parts:
            _digest(digest, f"{name}.{part}", getattr(tensor, part))
        return
    flat = tensor.cpu().contiguous().flatten()
    bits = flat.view({1: th.uint8, 2: th.int16, 4: th.int32, 8: th.int64}[flat.element_size()])
    sample = bits[:: max(1, len(bits) // 64)].tolist()
    digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {int(bits.sum(dtype=th.int64))} {sample}".encode())

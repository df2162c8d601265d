"""Weights that are no plain tensors."""

from __future__ import annotations

from typing import Any

import torch as th
from torch.utils._python_dispatch import return_and_correct_aliasing


class Halves(th.Tensor):
    """A weight kept as two tensors, as torchao keeps its own: a view of another dtype is not possible."""

    high: th.Tensor
    low: th.Tensor

    @staticmethod
    def __new__(cls, high: th.Tensor, low: th.Tensor) -> Halves:
        return th.Tensor._make_wrapper_subclass(cls, high.shape, dtype=th.float32)  # type: ignore[attr-defined]

    def __init__(self, high: th.Tensor, low: th.Tensor) -> None:
        self.high, self.low = high, low

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["high", "low"], None

    @staticmethod
    def __tensor_unflatten__(parts: Any, *_: Any) -> Halves:
        return Halves(parts["high"], parts["low"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is th.ops.aten.detach.default:
            return return_and_correct_aliasing(func, args, kwargs, Halves(args[0].high, args[0].low))
        raise NotImplementedError(f"{func} of a tensor of two halves")

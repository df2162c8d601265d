"""Keep what is remembered within a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch as th

CACHE_BYTES = 256 << 20
"""Bytes of all caches of a policy together, unless the settings say otherwise."""
ENTRY = 192
"""Bytes that an entry of a dictionary takes besides its value and the bytes of its key, as measured."""
FEW_ROWS = 64
"""Number of rows of a table of scores at first."""

K = TypeVar("K")
V = TypeVar("V")


class Cache(Protocol):
    """Tell how much is remembered."""

    @property
    def n_bytes(self) -> int:
        """Return the bytes that are remembered now."""

    @property
    def evicted(self) -> int:
        """Return how many entries were dropped so far because there was no room."""


@dataclass(frozen=True)
class CacheLimits:
    """Say how many bytes each kind of cache may hold.

    Each kind has a fixed share of the whole. So what one kind forgets does not depend on how full the others are, and
    a training that goes on from a checkpoint remembers the same scores as one that was never stopped.

    :param states: hidden states of lower layers that never change.
    :param prefixes: attention keys and values of prefixes that prompts share.
    :param scores: scores and values of the prompts of a rollout.
    :param queries: token ids of prompts and phrases.
    """

    states: int
    prefixes: int
    scores: int
    queries: int

    @classmethod
    def of(cls, cache_bytes: int, remembers_states: bool) -> CacheLimits:
        """Share out a number of bytes.

        :param cache_bytes: bytes of all caches together.
        :param remembers_states: whether states of lower layers are remembered. They get three quarters, because they
            are by far the largest, and to compute them anew takes the most time.
        """
        states = 3 * cache_bytes // 4 if remembers_states else 0
        share = (cache_bytes - states) // 3
        return cls(states, share, share, share)


class ByteCache(Generic[K, V]):
    """Remember values by their keys, and forget the oldest first.

    :param max_bytes: largest number of bytes. A value that alone takes more is not remembered.
    :param size_of: number of bytes of a key and its value. It must be the same at every call.
    """

    def __init__(self, max_bytes: int, size_of: Callable[[K, V], int]) -> None:
        self.max_bytes, self.size_of = max_bytes, size_of
        self.n_bytes = self.evicted = 0
        self._values: OrderedDict[K, V] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_values": OrderedDict(), "n_bytes": 0}  # copies and files begin with an empty cache

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return the value of a key; ``None`` if it is not remembered.

        :param key: any key.
        """
        return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        """Remember a value.

        :param key: key that is not remembered yet.
        :param value: value of the key.
        """
        size = ENTRY + self.size_of(key, value)
        if size > self.max_bytes:
            self.evicted += 1
            return
        self._values[key] = value
        self.n_bytes += size
        while self.n_bytes > self.max_bytes:
            oldest = self._values.popitem(last=False)
            self.n_bytes -= ENTRY + self.size_of(*oldest)
            self.evicted += 1


class ScoreMemory:
    """Remember a row of numbers for each prompt, and forget the oldest first.

    The rows are those of one table, because a tensor for each prompt would take a hundred times the bytes of its
    numbers.

    :param max_bytes: largest number of bytes of keys and table.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.evicted = 0
        self.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), **vars(ScoreMemory(self.max_bytes)), "evicted": self.evicted}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    @property
    def n_bytes(self) -> int:
        """Return the bytes of keys and table."""
        return self._key_bytes + self._table.numel() * self._table.element_size()

    @property
    def device(self) -> th.device:
        """Return the device that the rows are on."""
        return self._table.device

    def clear(self) -> None:
        """Forget all rows."""
        self._places: OrderedDict[bytes, int] = OrderedDict()
        self._table = th.empty(0, 0)
        self._free: list[int] = []
        self._key_bytes = 0

    def read(self, keys: Sequence[bytes]) -> th.Tensor:
        """Return the rows of prompts, ``(B, W)``.

        :param keys: keys that are remembered; B of them.
        """
        return self._table[th.tensor([self._places[key] for key in keys], device=self._table.device)]

    def rows(self, keys: Sequence[bytes], run: Callable[[list[int]], th.Tensor]) -> th.Tensor:
        """Return the rows of prompts, ``(B, W)``, and remember those that are new.

        :param keys: keys of the prompts; B of them.
        :param run: computes the rows of prompts that are not remembered. It is given their places among the keys.
        """
        first: dict[bytes, int] = {}
        for place, key in enumerate(keys):
            first.setdefault(key, place)
        unknown = [key for key in first if key not in self]
        if not unknown:
            return self.read(keys)
        new = run([first[key] for key in unknown])
        known = [key for key in first if key in self]
        # Read before the new ones are written, because these may take the places of known ones.
        rows = th.cat([new, self.read(known)]) if known else new
        self.write(unknown, new)
        if len(unknown) == len(keys):
            return rows
        places = {key: place for place, key in enumerate([*unknown, *known])}
        return rows[th.tensor([places[key] for key in keys], device=rows.device)]

    @th.inference_mode(False)  # what is made in inference mode could not be written to outside of it
    @th.no_grad()
    def write(self, keys: Sequence[bytes], rows: th.Tensor) -> None:
        """Remember the rows of prompts.

        :param keys: keys that are not remembered yet, all different; B of them.
        :param rows: numbers without gradient, ``(B, W)``.
        """
        if not self._places:
            self._table, self._free = rows.new_empty(0, rows.shape[1]), []
        try:
            self._write(keys, rows)
        except BaseException:  # Ctrl-C, too: some keys may have a place and no row yet
            self.clear()
            raise

    def _write(self, keys: Sequence[bytes], rows: th.Tensor) -> None:
        places = {}
        for number, key in enumerate(keys):
            place = self._make_room(len(self._places) + len(keys) - number, ENTRY + len(key))
            if place is not None:
                self._places[key] = place
                self._key_bytes += ENTRY + len(key)
                places[place] = number  # in a batch that is larger than the table, the later row counts
        to, numbers = th.tensor([list(places), list(places.values())], dtype=th.long, device=rows.device)
        self._table[to] = rows[numbers]

    def _make_room(self, wanted: int, size: int) -> int | None:
        """Return the place of a free row in the table; ``None`` if there is no room for it.

        :param wanted: number of rows that the table had best have.
        :param size: bytes of the key.
        """
        if not self._free:
            self._grow(wanted)
        fits = size <= self.max_bytes // 2  # the table takes no more than the other half
        while fits and self._places and (not self._free or self.n_bytes + size > self.max_bytes):
            key, place = self._places.popitem(last=False)
            self._key_bytes -= ENTRY + len(key)
            self._free.append(place)
            self.evicted += 1
        if fits and self._free:
            return self._free.pop()
        self.evicted += 1
        return None

    def _grow(self, wanted: int) -> None:
        """Make the table larger, up to half of all bytes."""
        old, width = self._table.shape
        most = self.max_bytes // 2 // (width * self._table.element_size())
        new = min(most, max(FEW_ROWS, wanted, 2 * old))
        if new > old:
            self._table = th.cat([self._table, self._table.new_zeros(new - old, width)])
            self._free = list(range(new - 1, old - 1, -1))

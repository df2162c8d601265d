"""Define Hypothesis strategies for random Gymnasium spaces, and two fixed spaces that several tests use.

Every random space is small (a handful of numbers per part) and seeded, so that ``space.sample()`` repeats.
"""

from __future__ import annotations

import string
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

GRAPH = spaces.Graph(spaces.Box(-9, 9, (2,)), spaces.Discrete(9))
PAIR = spaces.Dict(a=spaces.Discrete(9), b=spaces.Box(-9, 9, (2,)))

_FLOATS = (np.float16, np.float32, np.float64)
_INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32)
_CHARSETS = (string.ascii_letters, "01", 'a ";:,()[]\\\n', "\x00\x1b\u2028 é漢🙂", " ")

_shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
_some_shapes = st.lists(st.integers(1, 3), min_size=1, max_size=2).map(tuple)
_seeds = st.integers(0, 2**31 - 1)


@st.composite
def _boxes(draw: st.DrawFn) -> spaces.Box:
    shape = draw(_shapes)
    dtype = draw(st.sampled_from((*_FLOATS, *_INTEGERS, np.bool_)))
    if dtype is np.bool_:
        low, high = 0, 1
    elif dtype in _FLOATS:
        low = draw(st.sampled_from((-np.inf, -1000.0, -1.0, -1e-3, 0.0)))
        high = draw(st.sampled_from((1e-3, 1.0, 4.8, 60000.0, np.inf)))
    else:
        limits = np.iinfo(dtype)
        low = draw(st.sampled_from((0, max(-7, int(limits.min)))))
        high = draw(st.sampled_from((1, 100, min(int(limits.max), 2**63 - 2))))
    return spaces.Box(low, high, shape, dtype, seed=draw(_seeds))


def _discretes() -> SearchStrategy[spaces.Discrete]:
    return st.builds(spaces.Discrete, st.integers(1, 12), seed=_seeds, start=st.integers(-5, 5))


def _multi_binaries() -> SearchStrategy[spaces.MultiBinary]:
    return st.builds(spaces.MultiBinary, st.integers(1, 4) | _some_shapes, seed=_seeds)


@st.composite
def _multi_discretes(draw: st.DrawFn, largest: int = 9) -> spaces.MultiDiscrete:
    shape = draw(_some_shapes)
    size = int(np.prod(shape))
    counts = draw(st.lists(st.integers(1, largest), min_size=size, max_size=size))
    starts = draw(st.lists(st.integers(-5, 5), min_size=size, max_size=size))
    return spaces.MultiDiscrete(
        np.array(counts).reshape(shape), seed=draw(_seeds), start=np.array(starts).reshape(shape)
    )


@st.composite
def _texts(draw: st.DrawFn) -> spaces.Text:
    shortest = draw(st.integers(0, 3))
    longest = shortest + draw(st.integers(0, 8))
    charset = draw(st.sampled_from(_CHARSETS))
    return spaces.Text(longest, min_length=shortest, charset=charset, seed=draw(_seeds))


@st.composite
def _graphs(draw: st.DrawFn) -> spaces.Graph:
    features = _boxes() | _discretes()
    return spaces.Graph(draw(features), draw(st.none() | features), seed=draw(_seeds))


def _composites(parts: SearchStrategy[Space[Any]]) -> SearchStrategy[Space[Any]]:
    keys = st.text('ab :;\n"(', max_size=4)
    several = st.lists(parts, max_size=3)
    return st.one_of(
        st.builds(spaces.Tuple, several, seed=_seeds),
        st.builds(spaces.Dict, st.dictionaries(keys, parts, max_size=3), seed=_seeds),
        st.builds(spaces.OneOf, st.lists(parts, min_size=1, max_size=3), seed=_seeds),
        st.builds(spaces.Sequence, parts, seed=_seeds, stack=st.booleans()),
    )


def gym_spaces(max_leaves: int = 6) -> SearchStrategy[Space[Any]]:
    """Make random Gymnasium spaces of every kind, nested.

    :param max_leaves: largest number of spaces in a random space that contain no other space
    :return: strategy of seeded spaces
    """
    leaves = st.one_of(_boxes(), _discretes(), _multi_binaries(), _multi_discretes(), _texts(), _graphs())
    return st.recursive(leaves, _composites, max_leaves=max_leaves)


def exact_spaces(max_leaves: int = 6) -> SearchStrategy[Space[Any]]:
    """Make random spaces without fractions, so that words can tell their values apart.

    :param max_leaves: as for :func:`gym_spaces`
    :return: strategy of seeded spaces
    """
    leaves = st.one_of(_discretes(), _multi_binaries(), _multi_discretes(), _texts())
    return st.recursive(leaves, _composites, max_leaves=max_leaves)


def finite_action_spaces() -> SearchStrategy[Space[Any]]:
    """Make random ``Discrete``, ``MultiBinary`` and ``MultiDiscrete`` action spaces, with any ``start``.

    :return: strategy of seeded spaces of at most 256 actions
    """
    multi_discretes = _multi_discretes(largest=4).filter(lambda space: np.prod(space.nvec) <= 256)
    return st.one_of(_discretes(), _multi_binaries().filter(lambda s: np.prod(s.shape) <= 8), multi_discretes)

"""Make sets of action phrases as token ids."""

from __future__ import annotations

from hypothesis import strategies as st

Phrases = tuple[tuple[int, ...], ...]
PHRASES: dict[str, Phrases] = {
    "one token each": ((1,), (2,), (0,)),
    "shared prefix": ((5, 1, 7), (5, 1, 8), (5, 2)),
    "a phrase begins another": ((5,), (5, 1), (5, 1, 7, 7)),
    "the same token again and again": ((3, 3, 3), (3, 3), (3,)),
    "the same tail behind different heads": ((1, 9, 4), (2, 9, 4)),
    "token 0": ((0, 0), (0,), (0, 1), (1, 0)),
    "a single phrase": ((4, 5, 6),),
    "a single token": ((0,),),
}
phrase_sets = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple), min_size=1, max_size=6, unique=True
).map(tuple)

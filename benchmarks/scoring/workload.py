"""What the scoring benchmark scores: prompts and phrases with a wanted number of tokens, for any tokenizer."""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import torch as th

from benchmarks.scoring.models import BUNDLED, QWEN, WORDS
from lmpolicy import Prompt, TextSpace

DISTINCT, TREE = "distinct", "3x2x7"


@dataclass(frozen=True)
class Cell:
    """One point of the grid; the defaults are its centre, around which the figure varies one axis at a time.

    :param actions: K, number of phrases.
    :param phrase_tokens: tokens of each phrase.
    :param prompt_tokens: tokens of each prompt.
    :param shared: part of a prompt that all prompts of the batch begin with.
    :param batch: number of prompts, all different.
    :param phrases: ``DISTINCT``: no two phrases begin with the same token, the worst case for a trie; ``TREE``: all
        combinations of 3 verbs, 2 adjectives and 7 nouns.
    """

    actions: int = 4
    phrase_tokens: int = 2
    prompt_tokens: int = 150
    shared: float = 2 / 3
    batch: int = 8
    phrases: str = DISTINCT

    def __str__(self) -> str:
        return (
            f"{self.actions:>2} actions x {self.phrase_tokens}{' (tree)' if self.phrases == TREE else ''}, "
            f"{self.prompt_tokens:>3} tokens, {self.shared:>3.0%} shared, batch {self.batch:>2}"
        )


AXES: dict[str, tuple[Any, ...]] = {
    "actions": (2, 4, 16, 42),
    "prompt_tokens": (50, 150, 600),
    "shared": (0.0, 2 / 3, 0.95),
    "batch": (1, 8, 64),
}
CENTRE = Cell()
FORTY_TWO = Cell(actions=42, phrase_tokens=3)
FORTY_TWO_TREE = replace(FORTY_TWO, phrases=TREE)


def cells(model: str, quick: bool = False, targets: bool = False) -> list[Cell]:
    """The grid of a model, ordered so that a policy is made once per number of actions.

    :param model: name of the model. The bundled one is fast enough for the full cross.
    :param quick: a few cheap cells instead.
    :param targets: only those that the targets are about.
    """
    if targets:
        chosen = {CENTRE, replace(CENTRE, batch=64)} if model == BUNDLED else {CENTRE, FORTY_TWO, FORTY_TWO_TREE}
    elif quick:
        chosen = {CENTRE, replace(CENTRE, actions=2, prompt_tokens=50), replace(CENTRE, batch=1)}
    elif model == BUNDLED:
        chosen = {
            Cell(actions, CENTRE.phrase_tokens, tokens, shared, batch)
            for actions, tokens, shared, batch in itertools.product(*AXES.values())
        }
    else:
        lines: list[Any] = [[replace(CENTRE, **{axis: value}) for value in values] for axis, values in AXES.items()]
        chosen = set(itertools.chain(*lines)) | ({FORTY_TWO, FORTY_TWO_TREE} if model == QWEN else set())
    return sorted(chosen, key=astuple)


@dataclass(frozen=True)
class Workload:
    """A batch to score, as the policy gets it and as token ids.

    :param rows: uint8 rows, ``(B, bytes)``.
    :param prompts: token ids of the B prompts.
    :param phrases: token ids of the K phrases.
    :param shared: number of tokens that all prompts begin with; each keeps its last token for itself.
    :param tokens: the fewest tokens that must be run: the shared ones once, the rest of each prompt, and behind each
        prompt every distinct beginning of a phrase, since a phrase's last token is predicted, not run.
    """

    rows: th.Tensor
    prompts: list[list[int]]
    phrases: list[tuple[int, ...]]
    shared: int
    tokens: int

    @property
    def prompt_tokens(self) -> float:
        """Mean length of the prompts."""
        return sum(map(len, self.prompts)) / len(self.prompts)


def make_workload(renderer: Any, prompts: Sequence[Prompt]) -> Workload:
    """Encode and tokenize prompts which all have the same phrases.

    :param renderer: that of the policy.
    :param prompts: distinct prompts.
    """
    texts = [prompt.to_json() for prompt in prompts]
    space = TextSpace(max(len(text.encode()) for text in texts))
    ids = [list(row) for row in renderer.prompt_ids(prompts)]
    phrases = [renderer.action_ids(phrase) for phrase in prompts[0].actions]
    shared = common_beginning(ids) if len(ids) > 1 else 0
    nodes = {phrase[:end] for phrase in phrases for end in range(1, len(phrase))}
    tokens = shared + sum(len(row) - shared for row in ids) + len(ids) * len(nodes)
    return Workload(th.from_numpy(np.stack([space.encode(text) for text in texts])), ids, phrases, shared, tokens)


def make_cell(renderer: Any, cell: Cell, seed: int) -> Workload:
    """The workload of a cell.

    :param renderer: that of the policy, whose tokenizer decides how many words make how many tokens.
    :param cell: what is wanted.
    :param seed: of the choice of words.
    """
    rng = np.random.default_rng(seed)
    phrases = tree_phrases() if cell.phrases == TREE else distinct_phrases(renderer, cell)

    def length(system: Sequence[str], user: Sequence[str]) -> int:
        return len(renderer.prompt_ids([_prompt(system, user, phrases)])[0])

    def shared_length(system: Sequence[str]) -> int:
        return common_beginning(renderer.prompt_ids([_prompt(system, [digit], phrases) for digit in "01"]))

    wanted = int(cell.shared * cell.prompt_tokens)
    system = fit(_draw(rng, wanted), wanted, shared_length, rng) if wanted else []
    users: dict[tuple[str, ...], None] = {}  # a dict, since a set has no order that is the same in every run
    while len(users) < cell.batch:
        words = _draw(rng, cell.prompt_tokens - wanted)
        users[tuple(fit(words, cell.prompt_tokens, lambda user: length(system, user), rng))] = None
    return make_workload(renderer, [_prompt(system, user, phrases) for user in users])


def fit(words: list[str], wanted: int, length: Callable[[list[str]], int], rng: np.random.Generator) -> list[str]:
    """As many of the words as fit into a number of tokens, and digits, one token each, for what is left.

    :param words: at least as many as can fit.
    :param wanted: number of tokens.
    :param length: number of tokens of a prompt with these words; grows with every word.
    :param rng: chooses the digits.
    """
    low, high = 0, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if length(words[:middle]) <= wanted else (low, middle - 1)
    chosen = words[:low]
    while True:
        digit = str(rng.integers(10))
        # Also glued to the last word, since a space before a digit may be a token of its own.
        longer = [*chosen, digit], [*chosen[:-1], "".join([*chosen[-1:], digit])]
        fitting = [candidate for candidate in longer if length(chosen) < length(candidate) <= wanted]
        if not fitting:
            return chosen
        chosen = fitting[0]


def distinct_phrases(renderer: Any, cell: Cell) -> tuple[str, ...]:
    """Phrases of the wanted number of tokens, of which no two begin with the same one.

    Words where a word is one token, else a letter with digits, which is as many tokens for the bundled tokenizer.
    """
    count = cell.phrase_tokens
    words = (" ".join(WORDS[start : start + count]) for start in range(0, cell.actions * count, count))
    letters = (letter + string.digits[: count - 1] for letter in string.ascii_letters)
    phrases: dict[int, str] = {}
    for phrase in itertools.chain(words, letters):
        ids = renderer.action_ids(phrase)
        if len(ids) == count and len(phrases) < cell.actions:
            phrases.setdefault(ids[0], phrase)
    if len(phrases) < cell.actions:
        raise ValueError(f"this tokenizer has no {cell.actions} distinct phrases of {count} tokens")
    return tuple(phrases.values())


def tree_phrases() -> tuple[str, ...]:
    """42 phrases of 3 words: 3 verbs times 2 adjectives times 7 nouns."""
    return tuple(" ".join(words) for words in itertools.product(WORDS[:3], WORDS[3:5], WORDS[5:12]))


def common_beginning(rows: Sequence[Sequence[int]]) -> int:
    """Number of tokens that all rows begin with, the last one of each row left out."""
    columns = zip(*(row[:-1] for row in rows), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))


def _prompt(system: Sequence[str], user: Sequence[str], phrases: tuple[str, ...]) -> Prompt:
    first = [("system", " ".join(system))] if system else []
    return Prompt((*first, ("user", " ".join(user))), phrases)


def _draw(rng: np.random.Generator, count: int) -> list[str]:
    return [WORDS[index] for index in rng.integers(len(WORDS), size=count)]

"""Whether odd action phrases are read back as themselves from answers in free text.

    python -m benchmarks.parsing                   # 100 000 lists; two minutes on one core
    python -m benchmarks.parsing --lists 1000

Makes random lists of phrases from signs, digits, brackets, quotes, JSON, markers, white space and letters of several
scripts. Phrases that the wrapper refuses for free text, because one answer would ask for two of them, are counted and
made again. Each phrase of each list is read back bare, after ``Action: `` and as the ``"action"`` of JSON; it counts
where all three give this phrase. A second table says how long the longest answers take to read with 5000 phrases.
Writes benchmarks/results/parsing.csv and parsing_times.csv.
"""

import argparse
import contextlib
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gymnasium import spaces

from benchmarks.common.paths import RESULTS
from lmpolicy.files import write_table
from lmpolicy.text.parsing import MAX_CHARACTERS, ParseError, check_readable, extract_action
from lmpolicy.text.prompt import check_phrases

PIECES = (
    *("-", "+", "−", "0", "1", "2", "-1", "1.5", ".5", "1e3", "٣", "10", "99999999999999999999"),
    *("(", ")", "<", ">", "[", "]", "{", "}", '"', "'", "`", "**", "_", "“", "”", ":", "=", ",", ".", "!", "#", "\\"),
    *("north", "North", "go", "GO", "left", "turn left", "say", "hi", "f(x)", "x", "<left>", "(north)", "ß", "İ", "ς"),
    *("Action:", "action", "Action: ", '{"action": "', '"}', '{"action": "left"}', '{"a": 1}', "null", "true", "NaN"),
    *(" ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u2028", "\0", "é", "e\u0301", "北", "🙂", "```", "<|end|>", "\ufeff"),
)
"""What phrases are made of."""
FORMS = ("bare", "after Action:", "in JSON")
FIELDS = ("lists", "phrases", "refused_lists", *FORMS, "lists_with_all", "seed")
TIME_FIELDS = ("phrases", "answer", "characters", "seconds")
COUNT, LENGTH = 5000, 65_536


def odd_phrases(generator: random.Random) -> tuple[str, ...]:
    """A random list of phrases that pass :func:`lmpolicy.text.prompt.check_phrases`.

    :param generator: of random numbers.
    """
    wanted, found = generator.randint(1, 8), dict[str, None]()
    while len(found) < wanted:
        phrase = "".join(generator.choices(PIECES, k=generator.randint(1, 5))).strip()
        with contextlib.suppress(ValueError):
            check_phrases([phrase])
            found[phrase] = None
    return tuple(found)


def answers(phrase: str, generator: random.Random) -> dict[str, str]:
    """The forms of an answer that asks for a phrase.

    :param phrase: the phrase.
    :param generator: chooses whether JSON escapes what is not ASCII.
    """
    written = json.dumps({"action": phrase}, ensure_ascii=generator.random() < 0.5)
    return dict(zip(FORMS, (phrase, f"Action: {phrase}", written), strict=True))


def read(answer: str, phrases: tuple[str, ...]) -> str | None:
    """The phrase that an answer is read as.

    :param answer: what is written.
    :param phrases: the legal phrases.
    """
    legal = {phrase: index for index, phrase in enumerate(phrases)}
    try:
        return extract_action(answer, spaces.Discrete(len(phrases)), legal).phrase
    except ParseError:
        return None


def count(lists: int, seed: int) -> dict[str, int]:
    """How many phrases of random lists are read back as themselves.

    :param lists: how many lists are read.
    :param seed: of the random lists.
    """
    generator, counts = random.Random(seed), dict.fromkeys(FIELDS, 0)
    counts["seed"] = seed
    while counts["lists"] < lists:
        phrases = odd_phrases(generator)
        try:
            check_readable(dict.fromkeys(phrases))
        except ValueError:
            counts["refused_lists"] += 1
            continue
        right = 0
        for phrase in phrases:
            for form, answer in answers(phrase, generator).items():
                one = read(answer, phrases) == phrase
                counts[form] += one
                right += one
        counts["lists"] += 1
        counts["phrases"] += len(phrases)
        counts["lists_with_all"] += right == len(FORMS) * len(phrases)
    return counts


def long_answers() -> Iterator[tuple[str, str]]:
    """Names and texts of the longest answers that are read."""
    for name, unit in (
        ("words of phrases", "go to room "),
        ("one phrase again and again", "go to room 4321, "),
        ("Action: again and again", "Action: go to "),
        ("open braces", '{"action": '),
        ("signs", "-"),
        ("digits", "1"),
        ("stars", "*"),
    ):
        yield name, (unit * LENGTH)[: min(LENGTH, MAX_CHARACTERS)]


def times() -> list[dict[str, Any]]:
    """Seconds for reading the longest answers, with a list of phrases that was not seen before."""
    rows = []
    for number, (name, answer) in enumerate(long_answers()):
        phrases = tuple(f"go to room {index}" for index in range(number, number + COUNT))
        start = time.perf_counter()
        read(answer, phrases)
        seconds = time.perf_counter() - start
        rows.append({"phrases": COUNT, "answer": name, "characters": len(answer), "seconds": f"{seconds:.2f}"})
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write a table.

    :param path: the file.
    :param rows: the rows, with equal keys.
    """
    write_table(path, list(rows[0]), rows)
    print(path)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--lists", type=int, default=100_000, help="random lists of phrases")
    parser.add_argument("--seed", type=int, default=0, help="of the random lists")
    parser.add_argument("--output", type=Path, default=RESULTS / "parsing.csv", help="table; times go beside it")
    args = parser.parse_args(argv)
    counts = count(args.lists, args.seed)
    print(", ".join(f"{name}: {number:,}" for name, number in counts.items()))
    write(args.output, [counts])
    write(args.output.with_stem(args.output.stem + "_times"), times())


if __name__ == "__main__":
    main()

"""Draw changes at random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutants.changes import Place, Source, changed_lines


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: str
    place: Place
    code: str
    """Of the whole file, changed."""
    before: str
    """The lines that change."""
    after: str


def draw(root: Path, files: Sequence[str], size: int, seed: int) -> list[Mutant]:
    """Draw places, all equally likely, and at each one of its changes.

    :param root: folder of the project.
    :param files: source files within it.
    :param size: number of changes; fewer if there are fewer places.
    :param seed: of the draw. A larger sample begins with the smaller one of the same seed.
    """
    sources = {file: Source((root / file).read_text(encoding="utf-8")) for file in sorted(files)}
    places = [(file, place) for file, source in sources.items() for place in source.places]
    chance = random.Random(seed)
    chance.shuffle(places)
    mutants = []
    for file, place in places[:size]:
        code = sources[file].with_change(place, chance.randrange(len(place.changed)))
        mutants.append(Mutant(file, place, code, *changed_lines(sources[file].code, code)))
    return mutants

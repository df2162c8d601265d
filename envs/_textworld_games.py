"""Games of TextWorld, made from seeds and kept in a folder.

As a command: ``python -m lmpolicy.envs._textworld_games coin_collector --level 5 --games 20 --split test``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from lmpolicy.cache import cache_folder
from lmpolicy.text.counts import is_count

log = logging.getLogger(__name__)

CUSTOM = "custom"
CUSTOM_SETTINGS = {"world_size": 5, "nb_objects": 10, "nb_parallel_quests": 1, "quest_length": 5, "quest_breadth": 1}
"""Options of a game that belongs to no challenge, with the defaults of ``tw-make``."""
SPLITS = {"train": 0, "test": 1_000_000, "read": 2_000_000, "validation": 3_000_000}
"""First seed of each split. The bundled LM has read the games of ``read``; settings are chosen on ``validation``."""
ATTEMPTS, ANOTHER = 20, 10_000_000
"""How many seeds are tried where a map has no such quest, and how far apart they are."""
FEW = 5
"""Largest number of games that are made without a message in the log."""
EXTENSIONS = (".json", ".z8")
"""Extensions of the files of a game. The last one is written last, and makes the game complete."""


def require_textworld() -> Any:
    """Import the package textworld.

    :raises ImportError: if the package is not installed. The message says how to install it.
    """
    try:
        import textworld
        import textworld.challenges
    except ImportError as error:
        raise ImportError(f'{error}; TextWorld needs: pip install "lmpolicy[textworld]" (and a C compiler)') from error
    return textworld


def make_games(
    challenge: str, settings: Mapping[str, Any], games: int = 1, split: str = "train", folder: str | Path | None = None
) -> list[Path]:
    """Return the files of a challenge's games, and make those that are not there yet.

    Making one takes a few seconds.

    :param challenge: ``"coin_collector"``, ``"treasure_hunter"``, ``"simple"``, ``"cooking"`` or ``"custom"``.
    :param settings: options of ``tw-make`` for the challenge, with underscores. Options of the grammar are for all
        challenges.
    :param games: number of games.
    :param split: ``"train"``, ``"validation"`` or ``"test"``: games with seeds of their own.
    :param folder: where games are kept; see :class:`lmpolicy.envs.textworld.TextWorldEnv`.
    :return: one file per game.
    :raises ValueError: for an unknown challenge, split or option, or an option that is missing.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}; got {split!r}")
    if not is_count(games, 1) or games > SPLITS["test"]:
        raise ValueError(f"games is how many different games there are, 1 or more; got {games!r}")
    settings = {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}
    read_challenge_settings(challenge, settings)  # bad ones are found before anything is written
    target = Path(folder) if folder is not None else cache_folder("textworld")
    target.mkdir(parents=True, exist_ok=True)
    kind = hashlib.sha1(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
    wanted = {
        seed: target / f"{challenge}-{kind}-{seed}.z8" for seed in range(SPLITS[split], SPLITS[split] + int(games))
    }
    absent = sum(not file.is_file() for file in wanted.values())
    if absent > FEW:
        log.warning("making %d games of %s, one to four seconds each; they are kept in %s", absent, challenge, target)
    for seed, file in wanted.items():
        if not file.is_file():  # another process may have made it in the meantime
            _make(challenge, settings, seed, file)
    return list(wanted.values())


@contextmanager
def unscored() -> Iterator[None]:
    """Silence Jericho's warning that it knows only the scores of published games. TextWorld knows those of its own."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Game .* is not fully supported")
        yield


def read_challenge_settings(challenge: str, settings: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Split settings into TextWorld's options of game making and the challenge's own settings.

    :param challenge: as for :func:`make_games`.
    :param settings: as for :func:`make_games`.
    :raises ValueError: for an unknown challenge or option, or an option that is missing.
    """
    textworld = require_textworld()
    challenges = textworld.challenges.CHALLENGES
    names = [CUSTOM, *(name.removeprefix("tw-") for name in challenges)]
    if challenge not in names:
        raise ValueError(f"challenge must be one of {', '.join(sorted(names))}; got {challenge!r}")
    options = textworld.GameOptions()
    rest = dict(settings)
    for name in options.grammar.__slots__:
        if name in rest:
            setattr(options.grammar, name, rest.pop(name))
    parser = _Parser(prog=challenge, add_help=False, allow_abbrev=False)
    if challenge == CUSTOM:
        for name, default in CUSTOM_SETTINGS.items():
            parser.add_argument(_flag(name), type=int, default=default)
    else:
        challenges[f"tw-{challenge}"][2](parser)
    flags = []
    for name, value in rest.items():
        if value is True:
            flags.append(_flag(name))
        elif value not in (False, None):
            flags += [_flag(name), str(value)]
    return options, vars(parser.parse_args(flags))


def main(argv: list[str] | None = None) -> None:
    """Make games and print their files. Options that are not named here are the challenge's own."""
    parser = argparse.ArgumentParser(description="Make games of TextWorld from seeds.", allow_abbrev=False)
    parser.add_argument("challenge", help="coin_collector, treasure_hunter, simple, cooking or custom")
    parser.add_argument("--games", type=int, default=1, help="how many (default: 1)")
    parser.add_argument("--split", choices=list(SPLITS), default="train")
    parser.add_argument("--folder", type=Path, help=f"where they are kept (default: {cache_folder('textworld')})")
    args, rest = parser.parse_known_args(argv)
    settings: dict[str, Any] = {}
    name = ""
    for word in rest:
        if word.startswith("--"):
            name = word.removeprefix("--").replace("-", "_")
            settings[name] = True
        elif not name:
            parser.error(f"unrecognised argument: {word}")
        else:
            settings[name], name = int(word) if word.lstrip("-").isdigit() else word, ""
    try:
        files = make_games(args.challenge, settings, args.games, args.split, args.folder)
    except (ImportError, ValueError) as error:
        parser.error(str(error))
    print("\n".join(map(str, files)))


class _Parser(argparse.ArgumentParser):
    """Raise an error where argparse would end the program."""

    def error(self, message: str) -> NoReturn:
        options = sorted(action.dest for action in self._actions)
        raise ValueError(f"challenge_settings of {self.prog}: {message}; its options are {', '.join(options)}")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _make(challenge: str, settings: Mapping[str, Any], seed: int, file: Path) -> None:
    """Make one game. Where a seed gives a map without such a quest, try other seeds."""
    error = require_textworld().generator.chaining.QuestGenerationError
    for attempt in range(ATTEMPTS - 1):
        with suppress(error):
            return _try(challenge, settings, seed + attempt * ANOTHER, file)
    return _try(challenge, settings, seed + (ATTEMPTS - 1) * ANOTHER, file)


def _try(challenge: str, settings: Mapping[str, Any], seed: int, file: Path) -> None:
    """Make one game. Its file appears only when it is complete, even where several processes make it at once."""
    textworld = require_textworld()
    options, own = read_challenge_settings(challenge, settings)
    options.seeds = seed
    with tempfile.TemporaryDirectory(dir=file.parent) as scratch, unscored():
        options.path = str(Path(scratch) / file.name)
        if challenge == CUSTOM:
            options.nb_rooms = own.pop("world_size")
            for name, value in own.items():
                setattr(options, name, value)
            game = textworld.generator.make_game(options)
        else:
            game = textworld.challenges.CHALLENGES[f"tw-{challenge}"][1](own, options)
        made = Path(textworld.generator.compile_game(game, options))
        for extension in EXTENSIONS:
            made.with_suffix(extension).replace(file.with_suffix(extension))


def chosen_game(options: dict[str, Any] | None, drawn: int, games: int) -> int:
    """Return the number of the game that a reset starts.

    :param options: options of the reset, with the number as ``"game"``, or without.
    :param drawn: number of the game that was drawn at random.
    :param games: how many there are.
    :raises ValueError: if there is no such game.
    """
    chosen = (options or {}).get("game", drawn)
    if not is_count(chosen, 0) or chosen >= games:
        raise ValueError(f'options={{"game": i}} starts the i-th of {games} games, counted from 0; got {chosen!r}')
    return int(chosen)


if __name__ == "__main__":
    main()

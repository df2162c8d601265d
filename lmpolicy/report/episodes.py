"""Hold recorded episodes, and read them from files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lmpolicy.files import is_json_object, whole_file
from lmpolicy.report.tables import episodes_table
from lmpolicy.training.turns import TURN_KEYS, Turn, to_line
from lmpolicy.training.watching.whole_episodes import FILE, with_return

OF_A_TRAINING = b'"advantage": '
"""What a file of episodes of a training has: a key, since in a text, its quotation marks would be escaped."""
NEEDED = ("env_step", "messages", "probabilities")
NUMBERS = ("env_reward", "value", "episode_return", "advantage")
WHOLE_NUMBERS = ("env_step", "env", "episode", "turn")
TEXTS = ("action", "answer", "env_id", "picture")
TRUTHS = ("parse_error", "clipped", "truncated", "greedy")
BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


class Episodes(Sequence[Sequence[Turn]]):
    """Hold whole episodes, each of them a list of turns (:class:`lmpolicy.training.turns.Turn`).

    In a notebook, they show themselves as a table.

    :param episodes: turns of each episode, in their order.
    """

    def __init__(self, episodes: Iterable[Iterable[Turn]]) -> None:
        self._episodes = tuple(tuple(turns) for turns in episodes)

    @classmethod
    def from_jsonl(cls, path: str | Path) -> Episodes:
        """Read what :func:`lmpolicy.record_episodes` or :class:`~lmpolicy.WatchLearning` wrote.

        Where a training was killed and resumed, an episode may be there twice; the last one counts.

        :param path: file to read, or the folder that ``episodes.jsonl`` is in.
        :raises ValueError: if a line cannot be read; the message names file and line.
        """
        path = Path(path)
        found: dict[int, list[Turn]] = {}
        for turn in read_turn_lines(path / FILE if path.is_dir() else path):
            if turn.episode is None or turn.turn is None:
                raise ValueError(
                    f"{path} holds single turns, which are no episodes: name a file that record_episodes or "
                    "WatchLearning wrote, episodes.jsonl"
                )
            if turn.turn == 0:
                found[turn.episode] = []
            found.setdefault(turn.episode, []).append(turn)
        return cls(with_return(turns) for turns in found.values())

    @property
    def returns(self) -> list[float]:
        """Return the sum of the rewards of each episode."""
        return [float(sum(turn.env_reward or 0.0 for turn in turns)) for turns in self._episodes]

    def save(self, path: str | Path) -> Path:
        """Write a file that :meth:`from_jsonl` reads.

        :param path: file to write, or a folder, in which it is ``episodes.jsonl``. It appears when all of it is
            written.
        :return: the file.
        :raises FileExistsError: if it is a file of a training, which would be lost.
        """
        path = place_of(path)
        with whole_file(path) as file:
            for turn in (turn for turns in self._episodes for turn in turns):
                file.write(f"{to_line(turn)}\n".encode())
        return path

    def __len__(self) -> int:
        return len(self._episodes)

    def __getitem__(self, place: Any) -> Any:
        return Episodes(self._episodes[place]) if isinstance(place, slice) else self._episodes[place]

    def __iter__(self) -> Iterator[Sequence[Turn]]:
        return iter(self._episodes)

    def __repr__(self) -> str:
        turns = sum(map(len, self._episodes))
        mean = f", mean return {sum(self.returns) / len(self):.4g}" if self._episodes else ""
        return f"Episodes({len(self)} episode{'' if len(self) == 1 else 's'}, {turns} turns{mean})"

    def _repr_html_(self) -> str:
        """Return tables for a notebook, in which all text is escaped."""
        return episodes_table(self)


def place_of(path: str | Path) -> Path:
    """Return the file that episodes are written to.

    :param path: file, or a folder, in which it is ``episodes.jsonl``.
    :raises FileExistsError: if it is a file of a training, which would be lost; the message names another place.
    """
    path = Path(path)
    path = path / FILE if path.is_dir() or not path.suffix else path
    if path.is_file() and OF_A_TRAINING in path.read_bytes():
        raise FileExistsError(
            f"{path} holds episodes of a training, which would be lost: name another place, e.g. "
            f"{path.parent / 'recorded'}. A report of {path.parent} finds it there"
        )
    return path


def read_turn_lines(path: Path) -> Iterator[Turn]:
    """Read a file of turns.

    :param path: file with a JSON object on each line. A last line that a killed program did not finish is left out.
    :raises ValueError: if a line cannot be read; the message names file and line.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip() or not (line.endswith(b"\n") or is_json_object(line)):
                continue
            try:
                yield _turn(json.loads(line))
            except (ValueError, TypeError, RecursionError) as error:
                raise ValueError(f"{path}, line {number} is no turn: {error}") from error


def _turn(data: Any) -> Turn:
    """Read the object of a line."""
    if not isinstance(data, dict) or any(name not in data for name in NEEDED):
        raise ValueError(f"a turn is a JSON object with {', '.join(NEEDED)}")
    kinds: dict[str, Any] = dict.fromkeys(NUMBERS, int | float) | dict.fromkeys(WHOLE_NUMBERS, int)
    kinds |= dict.fromkeys(TEXTS, str) | dict.fromkeys(TRUTHS, bool)
    for name, kind in kinds.items():
        value = data.get(name)
        if value is not None and (not isinstance(value, kind) or (kind is not bool and isinstance(value, bool))):
            raise TypeError(f"{name} is {value!r}")
    messages, shares = data["messages"], data["probabilities"]
    if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
        raise TypeError("messages must be a list of roles and contents")
    if not isinstance(shares, dict) or not all(map(_is_share, shares.values())):
        raise TypeError("probabilities must map phrases to numbers")
    if data.get("picture") is not None and not BASE64.fullmatch(data["picture"]):
        raise ValueError("picture is no base64")
    missing: dict[str, Any] = {"env": 0, "action": None, "env_reward": None, "value": None}
    return Turn(**missing | {name: data[name] for name in TURN_KEYS if name in data})


def _is_message(one: Any) -> bool:
    return isinstance(one, dict) and all(isinstance(one.get(key), str) for key in ("role", "content"))


def _is_share(share: Any) -> bool:
    return share is None or (isinstance(share, int | float) and not isinstance(share, bool) and math.isfinite(share))

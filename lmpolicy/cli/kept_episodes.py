"""Write played episodes to a file, each when it is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lmpolicy.cli.run_settings import FILE as SETTINGS
from lmpolicy.files import existing_folder, whole_file
from lmpolicy.report.episodes import FILE, Episodes
from lmpolicy.training.checkpoints.checkpoints import MODEL
from lmpolicy.training.turns import Turn, to_line, write_turns

OF_A_RUN = (SETTINGS, MODEL, FILE, "turns.jsonl", "prompts.jsonl", "progress.csv")
"""Names of the files that a training writes into its folder."""


@dataclass
class KeptEpisodes:
    """Write played episodes to a file, each when it is over.

    :param path: file to write.
    :param number: number of the next episode.
    :param begun: whether what comes is added to the file, rather than written in its place.
    """

    path: Path
    number: int = 0
    begun: bool = False

    @classmethod
    def at(cls, output: Path, *, append: bool, overwrite: bool) -> KeptEpisodes:
        """Find the file, and check that nothing is lost and that it can be written.

        :param output: file to write, or a folder, in which it is ``episodes.jsonl``.
        :param append: whether episodes are added to those of the file.
        :param overwrite: whether they take the place of the file.
        :raises FileExistsError: if the file is there, and nothing says what to do with it; or if a file is in the place
            of its folder.
        :raises ValueError: if both are asked for, the file is that of a training, or episodes are to be added to
            something else.
        """
        if append and overwrite:
            raise ValueError("--append and --overwrite do not go together: leave one of them out")
        path = output / FILE if output.is_dir() else output
        if path.name in OF_A_RUN and (path.parent / SETTINGS).is_file():
            raise ValueError(f"{path} is a file of the training in {path.parent}: name another file")
        existing_folder(path.resolve().parent)
        if not path.exists():
            return cls(path)
        if append:
            before = Episodes.from_jsonl(path)
            if not len(before) and path.stat().st_size:  # a text without an end of a line would be cut off
                raise ValueError(f"{path} holds no episodes to add to: name another file")
            numbers = [turn.episode for turns in before for turn in turns if turn.episode is not None]
            return cls(path, max(numbers, default=-1) + 1, begun=True)
        if not overwrite:
            raise FileExistsError(
                f"{path} is there already: name another file, or pass --append to add to it, or --overwrite to replace "
                "it"
            )
        return cls(path)

    def add(self, turns: Sequence[Turn]) -> None:
        """Write an episode.

        :param turns: its turns.
        """
        numbered = [replace(turn, episode=self.number) for turn in turns]
        if self.begun:
            write_turns(self.path, numbered)
        else:
            with whole_file(self.path) as file:
                file.write("".join(f"{to_line(turn)}\n" for turn in numbered).encode())
        self.begun, self.number = True, self.number + 1

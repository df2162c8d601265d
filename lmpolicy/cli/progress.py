"""Show how a training goes, and keep its numbers in a file that goes on where a run is resumed."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, filter_excluded_keys

from lmpolicy.files import append_lines, whole_lines, write_table
from lmpolicy.report.curves import STEPS, TABLE

LINES = 20
"""Number of lines that a training prints where there is no terminal, besides one after the first rollout."""


class TrainingBar(BaseCallback):
    """Show a bar with the return so far and the time that is left; where there is no terminal, some lines.

    :param console: where to show it.
    :param total: env steps at the end of the training.
    """

    def __init__(self, console: Console, total: int) -> None:
        super().__init__()
        self._total, self._console = total, console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def _on_training_start(self) -> None:
        begins = self.num_timesteps
        self._task = self._bar.add_task("no episode yet", total=self._total, completed=begins)
        self._bar.start()
        self._said = -1

    def _on_step(self) -> bool:
        self._bar.update(self._task, completed=min(self.num_timesteps, self._total))
        return True

    def _on_rollout_end(self) -> None:
        self._bar.update(self._task, description=self.returns)
        reached = self.num_timesteps * LINES // self._total
        if not self._console.is_terminal and reached > self._said:
            self._said = reached
            self._console.print(f"{self.num_timesteps:,} of {self._total:,} env steps: {self.returns}")

    @property
    def returns(self) -> str:
        """Return the mean return of the last episodes in words."""
        mean = mean_return(self.model.ep_info_buffer or ())
        return "no episode yet" if mean is None else f"return {mean:.2f}"

    def _on_training_end(self) -> None:
        self.close()

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.stop()


def mean_return(episodes: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the mean return of episodes that SB3 has counted; ``None`` if there are none.

    :param episodes: the last episodes, as ``model.ep_info_buffer`` holds them.
    """
    return float(np.mean([episode["r"] for episode in episodes])) if episodes else None


class PendingNumbers(BaseCallback):
    """Keep what an update has logged in the checkpoint behind it, so that a resumed run writes it, too.

    SB3 writes the numbers of an update with those of the next rollout. What is no number, such as a picture, is lost.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the numbers that were logged and not yet written."""
        logger = self.logger
        return {
            name: {
                "value": _plain(value),
                "count": logger.name_to_count.get(name),
                "excluded": list(logger.name_to_excluded[name]),
            }
            for name, value in logger.name_to_value.items()
            if isinstance(value, int | float | str | np.generic)
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Log the numbers again when the training goes on.

        :param state: what :meth:`state_dict` returned.
        """
        self._kept = state

    def _on_training_start(self) -> None:
        for name, one in self._kept.items():
            self.logger.record(name, one["value"], tuple(one["excluded"]))
            if one["count"] is not None:  # of a mean
                self.logger.name_to_count[name] = one["count"]
        self._kept = {}

    def _on_step(self) -> bool:
        return True


def _plain(value: Any) -> Any:
    """Return a number as JSON has it, with the digits with which the file is written also in single precision."""
    if isinstance(value, np.floating):
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else value


class ProgressFile(KVWriter):
    """Write ``progress.csv``, as SB3 does, but go on with the file of a run that is resumed.

    :param folder: folder of the run.
    :param steps: env steps that are kept of a file that is there. What a killed run logged later is logged anew.
    """

    def __init__(self, folder: Path, steps: int) -> None:
        self.path, self._columns = folder / TABLE, list[str]()
        rows = self._read()
        if rows:
            write_table(self.path, self._columns, [row for row in rows if float(row.get(STEPS) or 0) <= steps])

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Write a row.

        :param key_values: numbers by name.
        :param key_excluded: kinds of files that a name is not for.
        :param step: env steps; they are among the numbers.
        """
        row = {name: str(value) for name, value in filter_excluded_keys(key_values, key_excluded, "csv").items()}
        if set(row) <= set(self._columns):
            append_lines(self.path, [_line(self._columns, row)])
        else:
            rows = self._read()
            self._columns += sorted(set(row) - set(self._columns))
            write_table(self.path, self._columns, [*rows, row])

    def close(self) -> None:
        """Do nothing: the file is whole after each row."""

    def _read(self) -> list[dict[str, str]]:
        if not self.path.exists():
            return []
        reader = csv.DictReader(io.StringIO(whole_lines(self.path), newline=""))
        rows = list(reader)
        self._columns = list(reader.fieldnames or ())
        return rows


def _line(columns: Sequence[str], row: Mapping[str, str]) -> str:
    """Return a row as a line of a table."""
    text = io.StringIO()
    csv.DictWriter(text, columns, lineterminator="").writerow(row)
    return text.getvalue()

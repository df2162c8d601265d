"""Hold what a comparison has found, and write it into its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stable_baselines3.common.vec_env import VecEnv

from lmpolicy.comparison.cells import model_file
from lmpolicy.comparison.experiment import Experiment
from lmpolicy.comparison.figures import save_curves
from lmpolicy.comparison.fingerprints import fingerprint
from lmpolicy.comparison.keeping import kept_env
from lmpolicy.comparison.methods import EnvFacts, Method, known_methods
from lmpolicy.comparison.storage import MODELS, Runs, read_runs
from lmpolicy.comparison.summary import SUMMARY, Group, group_runs
from lmpolicy.comparison.table import LEGEND, cells_of, markdown, meanings, to_html
from lmpolicy.files import whole_file, write_table

MOST_BEYOND = 0.05
"""Share of a training by which one may go on beyond its end, to finish a rollout, without a remark."""
SUMMARY_FILE, TABLE_FILE, CURVES_FILE = "summary.csv", "table.md", "curves.png"


@dataclass(frozen=True)
class Comparison:
    """Hold what a comparison has found. Printed, it is the table; a notebook shows the table as it is."""

    folder: Path
    """Folder with ``runs.csv``, ``summary.csv``, ``table.md``, ``curves.png`` and ``settings.json``."""
    env: str
    """Name of the env."""
    threshold: float | None
    """Mean return from which on the env counts as learnt; ``None`` where none was given and none is registered."""
    summary: Sequence[dict[str, str]]
    """A dict for each method, the columns of ``summary.csv``."""
    runs: Runs
    """The rows of ``runs.csv``, by method and seed."""
    experiment: Experiment = field(repr=False)
    """What was compared, and how."""

    def model(self, method: str, seed: int) -> Path:
        """Return the file with what a cell has learnt.

        Load it with the class of its learner, which is ``MaskablePPO`` of sb3-contrib for a classic one that is told
        the legal actions: ``PPO.load(found.model("lm", 100), env=found.model_env("lm", 100))``.

        :param method: name of the method.
        :param seed: of the training.
        :raises FileNotFoundError: if nothing was kept, or the cell's rows were deleted; the message says what is kept,
            and how to keep it.
        """
        path = model_file(self.folder / MODELS, method, seed)
        if not path.exists():
            there = ", ".join(sorted(one.stem for one in path.parent.glob("*.zip"))) or "none"
            raise FileNotFoundError(
                f"{path} is not there; kept are: {there}. compare(..., keep_models=True) keeps what a cell has learnt "
                "when it is complete, but for random weights. Of a cell that was complete before, delete the rows in "
                "runs.csv to run it again"
            )
        if (method, seed) not in self.runs:
            raise FileNotFoundError(
                f"{path} is what a cell had learnt whose rows are no longer in runs.csv: call compare(..., "
                f"keep_models=True) with method {method!r} and seed {seed} to run it again"
            )
        return path

    def model_env(self, method: str, seed: int, *, training: bool = False) -> VecEnv:
        """Make envs for what a cell has learnt: what they show is encoded and scaled as in its training.

        Files of the folder are unpickled, which can run any code: use folders of your own.

        :param method: name of the method.
        :param seed: of the training.
        :param training: whether they are those of the training, with its help and scaled rewards, to go on with it.
            False: those of the evaluations, with the env's own rewards.
        :raises FileNotFoundError: if nothing was kept, or not all that the envs need; the message says what to do.
        :raises ValueError: if the cell was run with other settings than this comparison; the message says what to do.
        """
        path, facts = self.model(method, seed), EnvFacts.of(self.experiment)
        rows = self.runs[method, seed]
        if {row["settings"] for row in rows} != {fingerprint(self.experiment, Method.of(method), facts)}:
            raise ValueError(
                f"{path} was learnt with other settings than those of this comparison: call compare with those of that "
                "time, and it is complete at once"
            )
        return kept_env(self.experiment, facts, method, seed, path, training)

    @property
    def curves(self) -> Path:
        """Return the file with the learning curves."""
        return self.folder / CURVES_FILE

    @property
    def table(self) -> str:
        """Return the table in Markdown."""
        return markdown(cells_of(self.summary))

    @property
    def title(self) -> str:
        """Return what stands above the table."""
        return self.env if self.threshold is None else f"{self.env}, threshold {self.threshold:g}"

    def __str__(self) -> str:
        return f"{self.title}\n\n{self.table}"

    def _repr_markdown_(self) -> str:
        return f"**{self.title}**\n\n{self.table}"

    def _repr_html_(self) -> str:
        return to_html(cells_of(self.summary), self.title)


def report(experiment: Experiment, folder: Path) -> Comparison:
    """Write summary, table and curves of all complete cells of a folder.

    :param experiment: what is compared.
    :param folder: folder with at least one complete cell.
    """
    runs = read_runs(folder)
    known = known_methods(experiment)
    names = sorted({name for name, _ in runs}, key=lambda name: known.index(name) if name in known else len(known))
    groups = group_runs(runs, experiment.name, experiment.threshold, names)
    summary = [group.summarize() for group in groups]
    found = Comparison(folder, experiment.name, experiment.threshold, summary, runs, experiment)
    write_table(folder / SUMMARY_FILE, SUMMARY, summary)
    notes = [f"# {found.title}", found.table, LEGEND, meanings(names), *_notes(groups)]
    with whole_file(folder / TABLE_FILE) as file:
        file.write(("\n\n".join(notes) + "\n").encode())
    if any(group.learns for group in groups):
        save_curves(groups, folder / CURVES_FILE, _figure_title(found, groups), experiment.best)
    return found


def _notes(groups: Sequence[Group]) -> list[str]:
    """Say what the runs ran on, and what must not be read out of them."""
    episodes = sorted({int(run.rows[-1]["episodes"]) for group in groups for run in group.runs})
    hardware = sorted({run.hardware for group in groups for run in group.runs})
    notes = [f"Episodes of an evaluation: {' or '.join(map(str, episodes))}. Hardware: {'; '.join(hardware)}."]
    notes += [f"The seeds of {group.method} were run with different settings." for group in groups if group.mixed]
    notes += [_beyond(group) for group in groups]
    few = [group.method for group in groups if len(group.runs) < 5]
    notes += [f"Fewer than five seeds: {', '.join(few)}. Their numbers may be luck."] if few else []
    return [note for note in notes if note]


def _beyond(group: Group) -> str:
    """Say that the last evaluation is of a policy that has played longer than the others; empty if it has not."""
    ends = [run.rows[-1] for run in group.runs]
    played, steps = (max(int(row[name]) for row in ends) for name in ("played", "env_steps"))
    if played <= steps * (1 + MOST_BEYOND):
        return ""
    done = f"{group.method} finished its last rollout"
    return f"{done}: its last evaluation is after {played:,} env steps, not {steps:,}."


def _figure_title(found: Comparison, groups: Sequence[Group]) -> str:
    counts = sorted({len(group.runs) for group in groups})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{found.env}: interquartile mean of {seeds} seed{'s' if counts[-1] > 1 else ''}"


def require_packages() -> None:
    """Fail before hours of training, not after.

    :raises ImportError: if a package is missing that the report needs; the message says how to install it.
    """
    try:
        import matplotlib  # noqa: F401
        import scipy  # noqa: F401
    except ImportError as error:
        raise ImportError(f'{error}; a comparison needs: pip install "lmpolicy[compare]"') from error

"""Write the tables of a task's page: options, results and settings."""

from __future__ import annotations

import csv
import importlib
import inspect
import json
import re
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Any

from task_list import Page

import lmpolicy
from lmpolicy.bundled import BUNDLED

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
SUMMARIES = {
    RESULTS / "compare" / "learning_summary.csv": "learning",
    RESULTS / "real_models" / "real_models_summary.csv": "real_models",
}
"""Tables of results with the benchmarks that write them; that of the bundled LM on eight seeds goes first."""
METHODS = {
    "lm": "language model",
    "bundled": "language model",
    "smollm2": "SmolLM2-135M-Instruct",
    "random-weights": "the same, random weights",
    "lm-no-help": "language model, no shaped reward",
    "classic": "classic PPO",
    "classic-raw": "classic PPO",
    "classic-words": "classic PPO on the words",
    "classic+help": "classic PPO, same help",
    "classic-raw+help": "classic PPO, same help",
    "classic-words+help": "classic PPO on the words, same help",
    "bot": "BabyAI's bot",
    "expert": "scripted expert",
    "random": "random play",
}
SETTINGS = (
    "total_timesteps",
    "n_envs",
    "n_steps",
    "batch_size",
    "n_epochs",
    "gamma",
    "gae_lambda",
    "learning_rate",
    "ent_coef",
    "normalize_advantage",
    "normalize_reward",
    "target_kl",
    "optimizer",
    "score_normalization",
)
"""Fields of settings that a page lists."""


def plain(text: str) -> str:
    """A text of a docstring as Markdown: roles as code, no line breaks within a paragraph."""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text.replace("``", "`"))
    return "\n".join(textwrap.wrap(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False))


def arguments(kwargs: Any) -> str:
    return "".join(f", {key}={value!r}".replace("'", '"') for key, value in kwargs.items())


def options(page: Page) -> str:
    """A table of the parameters of the task."""
    task = getattr(lmpolicy, page.task, None) or getattr(importlib.import_module(page.module), page.task)
    own = re.split(r"^:raises", inspect.getdoc(task) or "", flags=re.MULTILINE)[0]
    pairs = re.findall(r"^:param (\w+): (.*?)(?=^:|\Z)", own, flags=re.DOTALL | re.MULTILINE)
    if not pairs:
        return ""
    lines = [f"| `{page.task}({name}=...)` | {' '.join(plain(text).split())} |" for name, text in pairs]
    return "\n".join(["| option | meaning |", "|---|---|", *lines]).replace(" |", " |")


def number(text: str, digits: int = 2) -> str:
    """A number of a table of results, as a page writes it."""
    try:
        value = float(text)
    except ValueError:
        return "–" if text == "never" else text
    if value == int(value) and abs(value) >= 1000:
        return f"{int(value):,}".replace(",", " ")
    return f"{value:.{digits if abs(value) < 10 else 1}f}".rstrip("0").rstrip(".") if "." in text else text


def summary_of(task: str) -> tuple[Path, list[dict[str, str]]] | None:
    """The rows of a task in the first table of results that has it."""
    for path in SUMMARIES:
        rows = list(csv.DictReader(path.open(newline=""))) if path.exists() else []
        found = [row for row in rows if row["env"] == task]
        if found:
            return path, found
    return None


def benchmark_of(page: Page) -> str:
    """The benchmark that measures the tasks of a page."""
    found = next(filter(None, map(summary_of, page.results)), None)
    return "learning" if found is None else SUMMARIES[found[0]]


def results(page: Page) -> str:
    """A table of what was reached, and the files that it is from."""
    lines, files = [], dict[Path, None]()
    for task, label in page.results.items():
        found = summary_of(task)
        if found is None:
            continue
        path, rows = found
        files[path] = None
        for row in rows:
            if row["method"] not in METHODS:
                continue
            learns = int(row["env_steps"]) > 0
            stays = f"{number(row['stays'])} ({row['seeds_staying']})" if learns and row["seeds_staying"] else ""
            cells = (label, METHODS[row["method"]], number(row["final"], 3), number(row["sampled_final"], 3))
            cells += (number(row["env_steps"]) if learns else "", number(row["threshold"], 3), stays, row["seeds"])
            lines.append(f"| {' | '.join(cells)} |")
    if not lines:
        return "No result has been measured yet."
    measure = "success" if page.success else "return"
    head = ["task", "method", f"{measure}, most likely actions", f"{measure}, sampled", "env steps", "threshold"]
    head += ["stays from (seeds)", "seeds"]
    table = [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *lines]
    names = [path.name if len(files) == 1 else f"{path.parent.name}/{path.name}" for path in files]
    links = ", ".join(
        f"[{name}](../../{path.relative_to(ROOT).as_posix()})" for name, path in zip(names, files, strict=True)
    )
    note = f"Interquartile means over seeds. File: {links}. "
    note += (
        "Success: share of evaluation episodes. " if page.success else "Returns are without shaped or scaled rewards. "
    )
    note += (
        "*Stays*: env steps from which on all later evaluations are at the threshold, median over seeds (how many do). "
    )
    note += "Read [Before you compare](../results.md#before-you-compare) first."
    return "\n".join(table) + f"\n\n{plain(note)}"


def has_read(page: Page) -> str:
    """How much the bundled LM has read about the env."""
    steps: dict[str, int] = json.loads((BUNDLED / "pretraining.json").read_text())["env_steps"]
    if page.task == "GenericTask":
        return ""
    if page.task == "MiniGrid":
        read = sum(count for env_id, count in steps.items() if env_id.startswith(("MiniGrid", "BabyAI")))
        about = "its levels"
    else:
        read, about = steps.get(page.env_id, 0), f"`{page.env_id}`"
    count = f"{read:,}".replace(",", " ")
    text = f"{count} env steps of random play in {about}" if read else f"nothing about {about}"
    return f"The bundled LM has read {text} ([pretraining.json](../../lmpolicy/bundled/pretraining.json))."


def settings_table(page: Page) -> str:
    """A table of the named settings, or a sentence that there are none."""
    if not page.settings:
        found = [lmpolicy.hyperparameters(page.env_id)] if page.task != "GenericTask" else []
        text = "There are no named settings: `lmpolicy.hyperparameters` gives general ones, to start from."
        return text + (f" They score phrases per {found[0].score_normalization}." if found else "")
    columns = [lmpolicy.hyperparameters(page.env_id, **one) for one in page.settings]
    names = {one.name for one in fields(columns[0])}
    lines = []
    for name in (*SETTINGS, "training_wrapper", "task"):
        assert name in names, name
        values = [value_of(getattr(one, name)) for one in columns]
        if name in SETTINGS[:10] or any(values):
            lines.append(f"| `{name}` | {' | '.join(values)} |")
    heads = [arguments(one).removeprefix(", ") for one in page.settings]
    heads = [f"`{head}`" if head else "value" for head in heads]
    return "\n".join([f"| setting | {' | '.join(heads)} |", "|---|" + "---|" * len(heads), *lines])


def value_of(value: Any) -> str:
    """A value of a setting in a table."""
    if value is None:
        return ""
    if isinstance(value, (bool, str, int, float)):
        return f"{value:_}".replace("_", " ") if type(value) is int else str(value)
    if isinstance(value, tuple):
        return f"{value[0]:g}" if value[0] == value[1] else f"{value[0]:g}, falling to {value[1]:g}"
    kind = value if isinstance(value, type) else type(value)
    true = [name for name, one in vars(value).items() if one is True] if not isinstance(value, type) else []
    return f"`{kind.__name__}`" + (f" with `{', '.join(true)}`" if true else "")

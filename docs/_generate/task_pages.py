"""Write the pages of tasks from docstrings, from the envs themselves, and from the files of results.

``make pages`` writes them into ``docs/tasks``. They are committed, so that they can be read without building the site,
and a test holds them equal to what is written here. Where a package is missing, its prompt is left as it stands.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import shutil
import sys
import textwrap
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
sys.path[:0] = [str(DOCS.parent), str(Path(__file__).parent)]

from task_list import PAGES, Page  # noqa: E402  # after the path
from task_tables import arguments, benchmark_of, has_read, options, plain, results, settings_table  # noqa: E402

TASKS = DOCS / "tasks"
WIDTH = 100
PARTS = {
    "Environment": "The environment",
    "Observation text": "What the model reads",
    "Action phrases": "Actions",
    "Reward": "Reward",
}
"""How paragraphs of a docstring begin, and the headings over them."""


def missing(page: Page) -> str:
    """What is not there to run the example of a page; empty if all is there."""
    if page.package and importlib.util.find_spec(page.package) is None:
        return page.install
    return "a Java runtime" if page.java and shutil.which("java") is None else ""


# Parts of a page


def paragraphs(page: Page) -> dict[str, str]:
    """The paragraphs of a docstring by the heading over them."""
    try:
        documented: Any = importlib.import_module(page.module)
    except ModuleNotFoundError:
        module, _, name = page.module.rpartition(".")
        documented = getattr(importlib.import_module(module), name)
    text = (inspect.getdoc(documented) or "").split("\nExample:")[0]
    first, *rest = text.split("\n\n")
    found = {"": [re.sub(r"^.* in words(\.|: )", "", first)]}
    for one in rest:
        begin = re.match(r"(Environments?|Observation text|Action phrases|Reward)\b", one)
        heading = (
            PARTS[begin[1].removesuffix("s") if begin[1] == "Environments" else begin[1]] if begin else [*found][-1]
        )
        found.setdefault(heading, []).append(
            re.sub(r"^(Environments?|Observation text|Action phrases|Reward): ", "", one)
        )
    return {heading: "\n\n".join(as_markdown(text) for text in texts if text) for heading, texts in found.items()}


def as_markdown(paragraph: str) -> str:
    """A paragraph, or a list if it is one."""
    text = paragraph[0].upper() + paragraph[1:]
    if not text.startswith("- "):
        return plain(text)
    return "\n".join("- " + plain(item).replace("\n", "\n  ") for item in re.split(r"(?:^|\n)- ", text)[1:])


def example(page: Page, task: str = "") -> str:
    """Code that shows a prompt."""
    made = f'gym.make("{page.env_id}"{arguments(page.env_kwargs)})'
    rest = "".join(f", {one}" for one in (task, page.wrapper) if one)
    package = f"import {page.package}\n" if page.package == "minigrid" else ""
    lines = ["import gymnasium as gym", f"{package}import lmpolicy", ""]
    if len(made + rest) > WIDTH - 45:
        lines, made = [*lines, f"env = {made}"], "env"
    if len(rest) > WIDTH - 45:
        lines, rest = [*lines, f"task = {task}"], rest.replace(task, "task")
    lines += [f"env = lmpolicy.TextObservationWrapper({made}{rest})"]
    lines += [f"env.reset(seed={page.seed})", *(f'env.step("{phrase}")' for phrase in page.actions), page.shown]
    return "\n".join([*lines, *(["env.close()"] if page.java else [])])


def printed(code: str) -> str:
    """What code prints, wrapped."""
    out = StringIO()
    with redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(code, "example", "exec"), {"__name__": "__main__"})
    lines = out.getvalue().splitlines()
    return "\n".join(
        part
        for line in lines
        for part in textwrap.wrap(line, WIDTH, break_long_words=False, break_on_hyphens=False) or [""]
    )


def shown(page: Page, code: str, before: str) -> str:
    """Code with what it prints; without the package, what the page of before shows for the same code."""
    block = f"```python\n{code}\n```\n\n```text\n"
    if missing(page):
        known = re.search(re.escape(block) + r"(.*?)\n```", before, flags=re.DOTALL)
        output = known[1] if known else f"(shown where {missing(page)} is there)"
    else:
        output = printed(code)
    return f"{block}{output}\n```"


def training(page: Page) -> str:
    """Code that trains."""
    if page.task == "GenericTask":
        make = 'lmpolicy.Hyperparameters("CartPole-v1", task=lmpolicy.GenericTask())'
    else:
        kwargs = page.env_kwargs if page.package or page.name == "frozenlake" else {}
        make = f'lmpolicy.hyperparameters("{page.env_id}"{arguments(kwargs)})'
        if len(f"settings = {make}") > 120:  # as the formatter breaks it
            make = make.replace("(", "(\n    ", 1).removesuffix(")") + "\n)"
    return "\n".join(
        [
            "```python",
            "import lmpolicy",
            "from stable_baselines3 import PPO",
            "",
            f"settings = {make}",
            *(["# each copy is a Java process of its own"] if page.java else []),
            f"env = settings.make_env(seed=0{', n_envs=2' if page.java else ''})",
            "model = PPO(lmpolicy.LMActorCriticPolicy, env, seed=0, **settings.ppo)",
            "model.learn(settings.total_timesteps, callback=settings.callbacks())",
            "```",
        ]
    )


# Pages


def page_text(page: Page, before: str = "") -> str:
    """The whole page.

    :param page: what to show.
    :param before: the page as it stands, for what cannot be made anew.
    """
    parts = paragraphs(page)
    blocks = [f"# {page.title}", *filter(None, [parts.pop("")])]
    blocks += [f"Install: `{page.install}`" + (", and a Java runtime." if page.java else ".")]
    for heading in PARTS.values():
        if heading != "What the model reads" and heading not in parts:
            continue
        blocks += [f"## {heading}", *([parts[heading]] if heading in parts else [])]
        if heading == "What the model reads":
            blocks.append(shown(page, example(page), before))
            if page.words:
                blocks += ["With the words of the named settings:", shown(page, example(page, page.words), before)]
    if options(page):
        blocks += ["## Options", options(page)]
    blocks += ["## Results", results(page), *filter(None, [has_read(page)])]
    blocks += ["## How to run", training(page), settings_table(page)]
    if page.results:
        command = f"python -m benchmarks.{benchmark_of(page)} --tasks {' '.join(page.results)}"
        blocks += [f"`{command}` measures {'these tasks' if len(page.results) > 1 else 'this task'} anew."]
    return "\n\n".join([*blocks, *filter(None, [page.more])]) + "\n"


def index_text() -> str:
    """The page that lists the others."""
    lines = [
        f"| [{page.title}]({page.name}.md) | `{page.env_id}` | {'yes' if page.settings else 'general ones'} "
        f"| `{page.install}`{', Java' if page.java else ''} |"
        for page in PAGES
    ]
    return "\n".join(
        [
            "# Tasks",
            "",
            "A task says how an environment reads as text. Each page shows a real prompt, the phrases, the reward,",
            "what was reached, and how to train. The pages are made from the code and from the files of results:",
            "`make pages` writes them anew.",
            "",
            "| task | example | named settings | install |",
            "|---|---|---|---|",
            *lines,
            "",
            "An environment that is not here works, too: [Any other environment](generic.md). [Which settings for my",
            "environment?](../guide/which-settings.md) says what to begin with.",
            "",
            "```{toctree}",
            ":hidden:",
            "",
            *(page.name for page in PAGES),
            "```",
            "",
        ]
    )


def make(name: str, before: str = "") -> str:
    """The text of a page by its name."""
    return index_text() if name == "index" else page_text({page.name: page for page in PAGES}[name], before)


if __name__ == "__main__":
    for name in ("index", *(page.name for page in PAGES)):
        path = TASKS / f"{name}.md"
        path.write_text(make(name, path.read_text() if path.exists() else ""))
        print(path.relative_to(DOCS.parent))

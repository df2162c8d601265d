"""Write one self-contained HTML page about one run or several."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib import resources
from pathlib import Path
from string import Template

from lmpolicy.files import whole_file
from lmpolicy.report.packing import Packer, as_json
from lmpolicy.report.runs import Run, Shown, read_runs
from lmpolicy.text.spaces import utf8
from lmpolicy.training.turns import Turn

FILE = "report.html"
MAX_BYTES = 5_000_000


def write_report(
    runs: Shown | Sequence[Shown] | Mapping[str, Shown],
    path: str | Path | None = None,
    *,
    title: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Path:
    """Write a page that shows how a run learnt, and what the agent did and does.

    The page is one HTML file. It opens from the disk in any browser of today, asks no network, and may be sent to
    others. It shows the curves of the log, the recorded episodes turn by turn, and what the policy said to the same
    prompts while it learnt. All text of envs and models stays text.

    Example:
        >>> import gymnasium as gym
        >>> import lmpolicy
        >>> env = lmpolicy.TextObservationWrapper(gym.make("Blackjack-v1"))
        >>> played = lmpolicy.record_episodes(lambda prompt, info: "stick", env, 3, seed=0)
        >>> lmpolicy.write_report(played, "report.html")  # doctest: +SKIP
        PosixPath('report.html')

    :param runs: folder of a run, in which the log of Stable-Baselines3 and the files of
        :class:`~lmpolicy.WatchLearning` and :func:`~lmpolicy.record_episodes` are found; or a file of episodes; or
        :class:`~lmpolicy.report.episodes.Episodes`. Several are shown side by side. A mapping gives them names.
    :param path: file to write, or a folder, in which it is ``report.html``. Default: the folder of the first run.
    :param title: title of the page. Default: the names of the runs.
    :param max_bytes: size that the page should not exceed. Where there is more to show, pictures are left out, and then
        episodes between the first and the last; the page says so.
    :return: the file that was written.
    :raises FileNotFoundError: if a run is not there.
    :raises TypeError: if a run is none of these.
    :raises ValueError: if a run has nothing to show, or a file cannot be read; the message says what helps.
    """
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
        raise ValueError(f"max_bytes is the size of the page in bytes, for instance 5_000_000; got {max_bytes!r}")
    found = read_runs(runs)
    path = _default_path(runs) if path is None else Path(path)
    path = path / FILE if path.is_dir() else path
    page = _page(found, title or " and ".join(run.name for run in found), max_bytes)
    with whole_file(path) as file:
        file.write(page)
    return path


def _default_path(runs: object) -> Path:
    """Return the folder of the first run."""
    several = list(runs.values()) if isinstance(runs, Mapping) else runs if isinstance(runs, list | tuple) else [runs]
    first = several[0]
    if not isinstance(first, str | Path):
        raise ValueError(
            'name the file to write, write_report(episodes, "report.html"): episodes in memory have no folder'
        )
    place = Path(first)
    return place if place.is_dir() else place.parent


def _page(runs: Sequence[Run], title: str, max_bytes: int) -> bytes:
    """Return the page, with as much as its size allows."""
    recorded, notes = sum(len(run.episodes) for run in runs), list[str]()
    page = _render(runs, title, set(), notes)
    while len(page) > max_bytes and any(len(run.episodes) > 2 for run in runs):
        runs = [replace(run, episodes=_thinned(run.episodes)) for run in runs]
        left = recorded - sum(len(run.episodes) for run in runs)
        notes = [f"{left} of {recorded} recorded episodes are left out to keep the page small."]
        page = _render(runs, title, set(), notes)
    pictured, wanted = _affordable_pictures(runs, max_bytes - len(page))
    if wanted > len(pictured):
        notes.append(f"Pictures of {wanted - len(pictured)} of {wanted} episodes are left out to keep the page small.")
    return _render(runs, title, pictured, notes) if wanted else page


def _thinned(episodes: Sequence[Sequence[Turn]]) -> list[Sequence[Turn]]:
    """Return every second episode, and the last."""
    return [one for place, one in enumerate(episodes) if place % 2 == 0 or place == len(episodes) - 1]


def _affordable_pictures(runs: Sequence[Run], left: int) -> tuple[set[tuple[int, int]], int]:
    """Return the runs and episodes whose pictures fit, the last ones first, and how many episodes have pictures."""
    costs = {
        (number, place): sum(len(picture) + 10 for picture in {turn.picture for turn in turns} if picture)
        for number, run in enumerate(runs)
        for place, turns in enumerate(run.episodes)
    }
    wanted = [key for key, cost in costs.items() if cost]
    kept: set[tuple[int, int]] = set()
    for key in sorted(wanted, key=lambda key: -key[1]):
        if costs[key] <= left:
            left -= costs[key]
            kept.add(key)
    return kept, len(wanted)


def _render(runs: Sequence[Run], title: str, pictured: set[tuple[int, int]], notes: Sequence[str]) -> bytes:
    """Fill the template."""
    data = Packer(lambda run, episode: (run, episode) in pictured).pack(runs, title, notes)
    style, script = _asset("page.css"), _asset("page.js")
    page = Template(_asset("page.html")).substitute(
        policy=(
            f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
            "base-uri 'none'; form-action 'none'"
        ),
        title=escape(title),
        style=style,
        script=script,
        data=as_json(data),
    )
    return utf8(page)


def _asset(name: str) -> str:
    return resources.files("lmpolicy.report").joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    """Return the hash by which a browser knows the page's own style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

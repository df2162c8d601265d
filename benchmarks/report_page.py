"""How large the page of a run is, how long a browser takes to open it, and what axe-core finds in it.

    python -m benchmarks.report_page
    python -m benchmarks.report_page --axe    # installs axe-core by npm into a temporary folder, and asks it

Three pages are made. ``turns`` has 10 000 turns in one episode. ``run`` has every turn of a run of 20 000 env steps of
CartPole in words, which is more than a training records, with as many points of as many curves as such a run logs, the
same prompts at 21 times, and pictures of an episode of 500 turns. ``two`` shows that run twice, side by side. They are
played at random, because what a page costs does not depend on how well the agent plays.

The time is that from the start of the navigation to the end of the load event, by which the page has drawn itself.
Each page is opened once before, and then as often as asked. axe-core is asked in light and dark, on a desktop and on a
phone, with everything unfolded; "serious" counts findings that it calls serious or critical.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import lmpolicy
from benchmarks.common.browser import Browser, browser, find_chromium
from benchmarks.common.paths import RESULTS
from lmpolicy.comparison.machine import processor
from lmpolicy.files import write_table
from lmpolicy.report.episodes import Episodes
from lmpolicy.training.turns import Turn, write_turns

OUTPUT = RESULTS / "report.csv"
FIELDS = (
    "page",
    "turns",
    "bytes",
    "write_seconds",
    "open_seconds",
    "open_seconds_longest",
    "repetitions",
    "axe_findings",
    "axe_serious",
    "axe_version",
    "browser",
    "processor",
)
LONG, STEPS, PICTURED, ROLLOUTS, CURVES = 10_000, 20_000, 500, 20, 24
LOOKS = {"desktop": (1280, 900, False), "phone": (390, 844, True)}
AXE = "axe-core@4"


def play(turns: int, env: gym.Env, seed: int) -> list[list[Turn]]:
    """Play at random until so many turns are played; the last episode is cut to fit."""
    random = np.random.default_rng(seed)

    def choose(prompt: Any, info: Any) -> int:
        return int(random.integers(len(prompt.actions)))

    found: list[list[Turn]] = []
    left = turns
    while left > 0:
        ((*played,),) = lmpolicy.record_episodes(choose, env, 1, seed=seed + len(found))
        played = played[:left]
        step = turns - left
        found.append([_learnt(turn, random, step + place + 1, len(found)) for place, turn in enumerate(played)])
        left -= len(played)
    return found


def _learnt(turn: Turn, random: np.random.Generator, step: int, episode: int) -> Turn:
    """Give a turn the numbers that a training would note."""
    share = float(random.random())
    shares = dict(zip(turn.probabilities, (share, 1 - share), strict=True))
    value, advantage = (float(number) for number in random.normal(size=2))
    return replace(
        turn,
        probabilities=shares,
        value=value,
        advantage=advantage,
        env_step=step,
        episode=episode,
        greedy=False,
    )


def joined(episodes: list[list[Turn]]) -> list[Turn]:
    """All turns as one episode."""
    turns = [turn for turns in episodes for turn in turns]
    return [replace(turn, episode=0, turn=place) for place, turn in enumerate(turns)]


def make_run(folder: Path) -> Path:
    """Write what a run of 20 000 env steps may leave at most."""
    random = np.random.default_rng(0)
    folder.mkdir()
    env = lmpolicy.TextObservationWrapper(gym.make("CartPole-v1"))
    pictured = lmpolicy.TextObservationWrapper(gym.make("CartPole-v1", render_mode="rgb_array"))
    episodes = play(STEPS, env, 0)
    Episodes(episodes).save(folder)
    last = joined(play(PICTURED, pictured, 10_000))
    Episodes([[replace(turn, env_step=STEPS) for turn in last]]).save(folder / "after")
    said = [_learnt(turn, random, 0, 0) for turn in episodes[0][:4]]
    for step in range(0, STEPS + 1, STEPS // ROLLOUTS):
        write_turns(
            folder / "prompts.jsonl",
            [replace(turn, env_step=step, turn=place, episode=None) for place, turn in enumerate(said)],
        )
    names = ["rollout/ep_rew_mean", "lm/entropy", "train/approx_kl", "train/value_loss", "time/env_steps_per_second"]
    names += [f"train/number_{place}" for place in range(CURVES - len(names))]
    with (folder / "progress.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["time/total_timesteps", *names])
        for rollout in range(1, ROLLOUTS + 1):
            table.writerow([rollout * STEPS // ROLLOUTS, *random.normal(size=len(names))])
    return folder


def pages(folder: Path) -> Iterator[tuple[str, int, float, Path]]:
    """Write the pages: name, number of turns, seconds, file."""
    env = lmpolicy.TextObservationWrapper(gym.make("CartPole-v1"))
    run = make_run(folder / "run")
    shown: dict[str, tuple[int, Any]] = {
        "turns": (LONG, Episodes([joined(play(LONG, env, 1))])),
        "run": (STEPS + PICTURED, run),
        "two": (2 * (STEPS + PICTURED), {"one": run, "other": run}),
    }
    for name, (turns, what) in shown.items():
        begun = time.perf_counter()
        path = lmpolicy.write_report(what, folder / f"{name}.html")
        yield name, turns, time.perf_counter() - begun, path


def open_seconds(tab: Browser, path: Path, repetitions: int) -> list[float]:
    """Open a page again and again."""
    seconds = []
    for _ in range(repetitions + 1):
        tab.open(path)
        assert tab.run("document.documentElement.dataset.ready") == "true"
        tab.run("new Promise((done) => setTimeout(done, 50))")  # the load event ends after its listeners
        seconds.append(tab.run("performance.getEntriesByType('navigation')[0].loadEventEnd / 1000"))
    return seconds[1:]


def findings(tab: Browser, path: Path, axe: str) -> list[dict[str, Any]]:
    """What axe-core finds in a page, in each look."""
    found = []
    for name, (width, height, phone) in LOOKS.items():
        for dark in (False, True):
            tab.look(width, height, dark, phone)
            tab.open(path)
            tab.run("document.querySelectorAll('summary').forEach((one) => one.click())")
            tab.run(axe)
            result = json.loads(tab.run("axe.run().then((found) => JSON.stringify(found.violations))"))
            found += [{"look": f"{name}, {'dark' if dark else 'light'}", **one} for one in result]
    tab.look(1280, 900)
    return found


def axe_source(folder: Path) -> tuple[str, str]:
    """Install axe-core into a folder: its script and its version."""
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("--axe needs npm, which brings axe-core")
    subprocess.run([npm, "install", "--silent", "--no-fund", "--no-audit", "--prefix", folder, AXE], check=True)
    package = folder / "node_modules" / "axe-core"
    version = json.loads((package / "package.json").read_text())["version"]
    return (package / "axe.min.js").read_text(), version


def measure(repetitions: int, with_axe: bool) -> list[dict[str, Any]]:
    """Return the rows of the table."""
    executable = find_chromium()
    if executable is None:
        raise SystemExit("this benchmark opens pages in Chromium: apt-get install chromium")
    rows = []
    with tempfile.TemporaryDirectory() as place, browser(executable) as tab:
        source, version = axe_source(Path(place)) if with_axe else ("", "")
        tab.look(1280, 900)
        for name, turns, written, path in pages(Path(place)):
            seconds = open_seconds(tab, path, repetitions)
            row: dict[str, Any] = {"page": name, "turns": turns, "bytes": path.stat().st_size}
            row |= {"write_seconds": f"{written:.2f}", "open_seconds": f"{statistics.median(seconds):.3f}"}
            row |= {"open_seconds_longest": f"{max(seconds):.3f}", "repetitions": repetitions}
            row |= {"browser": tab.version(), "processor": processor()}
            if with_axe:
                found = findings(tab, path, source)
                for one in found:
                    print(f"{name}, {one['look']}: {one['impact']}: {one['id']}, {one['help']}")
                    print(f"    {one['nodes'][0]['html'][:160]}")
                serious = sum(one["impact"] in ("serious", "critical") for one in found)
                row |= {"axe_findings": len(found), "axe_serious": serious, "axe_version": version}
            rows.append(row)
            print(row)
    return rows


def main(argv: list[str] | None = None) -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=9, help="how often a page is opened")
    parser.add_argument("--axe", action="store_true", help="install axe-core by npm, and count what it finds")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    args = parser.parse_args(argv)
    rows = measure(args.repetitions, args.axe)
    write_table(args.output, FIELDS, rows)


if __name__ == "__main__":
    main()

"""The benchmark of resident memory shows new prompts only, and writes a row per rollout."""

from __future__ import annotations

from pathlib import Path

from helpers.learning_tools import run_benchmark, table

from benchmarks.memory import House, Rooms
from lmpolicy import TextObservationWrapper


def test_memory(tmp_path: Path) -> None:
    size = ("--envs", "2", "--rollout", "4", "--steps", "24", "--cache-mib", "1")
    run_benchmark("memory", *size, folder=tmp_path)
    rows = table(tmp_path / "memory.csv")
    assert [int(row["env_steps"]) for row in rows] == [8, 16, 24]
    for row in rows:
        assert 0 < float(row["cache_mib"]) <= 1
        assert 100 < float(row["rss_mib"]) < 10_000


def test_no_prompt_comes_twice() -> None:
    seen = set()
    for _ in range(2):
        env = TextObservationWrapper(Rooms(), House)
        for _ in range(3):
            env.reset()
            seen.add(str(env.prompt))
            while not env.step("left door")[3]:
                seen.add(str(env.prompt))
    assert len(seen) == 2 * 3 * 50

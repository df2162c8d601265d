"""Write the episodes of an env to a file, which a resumed training goes on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
from stable_baselines3.common.monitor import Monitor

from lmpolicy.files import append_lines, whole_lines

COLUMNS = ["r", "l", "t", "env_id"]
"""What is known of an episode: return, length, seconds since the training began, and name of the env."""


def monitor_file(folder: str | Path, number: int) -> Path:
    """Return the file of the episodes of a copy of an env.

    :param folder: folder of the files. It need not exist.
    :param number: number of the copy.
    :raises ValueError: if another program's file is in its place. Name another folder.
    """
    path = Path(folder, f"{number}.{Monitor.EXT}")
    _header(path)
    return path


def monitored(env: gym.Env, path: Path | None) -> Monitor:
    """Note return, length and time of each episode in ``info["episode"]``, and in a file.

    Episodes are appended to a file that is there. Their times go on from its beginning, because ``load_results`` of
    Stable-Baselines3 reads them so.

    :param env: env whose infos have ``env_id``.
    :param path: what :func:`monitor_file` returned. ``None``: no file.
    """
    header = None if path is None else _header(path)
    if path is None or header is None:
        return Monitor(env, None if path is None else str(path), info_keywords=("env_id",))
    append_lines(path, ())  # cuts off a line that a killed program did not finish
    found = Monitor(env, str(path), info_keywords=("env_id",), override_existing=False)
    found.t_start = header["t_start"]
    return found


def _header(path: Path) -> dict[str, Any] | None:
    """Return the header of a file; ``None`` if there is no file, or a program was killed before it wrote the header."""
    lines = whole_lines(path).splitlines() if path.is_file() else []
    if len(lines) < 2:
        return None
    if lines[1].split(",") != COLUMNS or not lines[0].startswith("#"):
        raise ValueError(
            f"{path} is no file of make_multi_env, to which episodes could be appended: name another monitor_dir"
        )
    header: dict[str, Any] = json.loads(lines[0][1:])
    return header

"""Say where things are kept that are made once: games, and models in another format."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """Return the folder for one kind of files; it need not exist yet.

    It lies in the folder that the environment variable ``LMPOLICY_CACHE`` names, or in ``~/.cache/lmpolicy``.

    :param kind: name of the folder, e.g. ``"textworld"``.
    """
    cache = os.environ.get("LMPOLICY_CACHE")
    return (Path(cache) if cache else Path.home() / ".cache" / "lmpolicy") / kind

"""Copy the project, so that no change ever touches the files that are worked on."""

from __future__ import annotations

import compileall
import hashlib
import importlib.util
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

LEFT_OUT = shutil.ignore_patterns(".*", "runs", "build", "dist", "_build", "__pycache__", "*.egg-info")


class Tree:
    """A copy of the project in another folder, in which one file at a time is changed.

    :param project: folder of the project. It is only read.
    :param folder: where the copy goes; it must not exist.
    """

    def __init__(self, project: Path, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(project, folder, ignore=LEFT_OUT)
        compileall.compile_dir(folder, quiet=2)

    @contextmanager
    def changed(self, file: str, code: str) -> Iterator[None]:
        """Put other code into a file of the copy for a while.

        :param file: path of the file within the project.
        """
        path = self.folder / file
        before = path.read_text(encoding="utf-8")
        # Compiled code is told apart by seconds and size, which a change may leave as they are.
        compiled = Path(importlib.util.cache_from_source(str(path)))
        try:
            path.write_text(code, encoding="utf-8")
            compiled.unlink(missing_ok=True)
            yield
        finally:
            path.write_text(before, encoding="utf-8")
            compiled.unlink(missing_ok=True)


def digest(root: Path, files: Iterable[Path]) -> str:
    """Return a short name for what stands in files."""
    found = hashlib.sha256()
    for file in sorted(files):
        found.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()[:16]

"""A folder with a package of one's own, in which commands run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.commands import inside, write_package


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the package, for all tests of a file; the current folder."""
    folder = tmp_path_factory.mktemp("project")
    write_package(folder)
    with inside(folder):
        yield folder

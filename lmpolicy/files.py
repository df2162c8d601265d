"""Write files and folders so that a reader finds all of one, or nothing, whenever the program ends."""

from __future__ import annotations

import csv
import glob
import io
import json
import os
import shutil
import time
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

DRAFT = ".draft-"
"""Beginning of the names of files and folders that are not complete, or that are about to be deleted."""
STALE = 3600.0
"""Seconds since the last change after which a draft belongs to a program that was killed."""


@contextmanager
def whole_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file that takes its place when all of it is on the disk.

    The bytes go to a temporary file in the same folder, which then replaces what had the name before. After an error,
    on a full disk, or if the program is killed, the old file is there still.

    :param path: file to write. Its folder is made if it does not exist.
    :return: binary file to write to, within a ``with`` block.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = draft_beside(path)
    remove_drafts(path.parent, path.name)
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a CSV file whole; what a row lacks is left empty.

    :param path: file to write.
    :param columns: names of the columns.
    :param rows: the rows.
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with whole_file(path) as file:
        file.write(text.getvalue().encode())


def draft_beside(path: Path) -> Path:
    """Return an unused name for something that takes the place of a path when it is complete.

    :param path: file or folder.
    """
    return path.with_name(f"{DRAFT}{path.name}-{uuid.uuid4().hex[:8]}")


def remove_drafts(folder: Path, name: str | None = None, older_than: float = STALE) -> None:
    """Delete what killed programs left of a file or folder.

    :param folder: folder to look into.
    :param name: name that the drafts would have been given. ``None``: any name.
    :param older_than: seconds since the last change; 0 where no other program writes to the folder.
    """
    for draft in folder.glob(f"{DRAFT}*" if name is None else f"{DRAFT}{glob.escape(name)}-*"):
        with suppress(FileNotFoundError):  # another program has deleted it, or given it its name
            if time.time() - draft.stat().st_mtime >= older_than:
                shutil.rmtree(draft) if draft.is_dir() else draft.unlink()


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk.

    :param folder: folder in which something was renamed.
    """
    with suppress(OSError):  # Windows opens no folders, and needs not to
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Append whole lines to a text file.

    If a program was killed while it wrote the last line, that line has no end. It is cut off first. A whole JSON object
    that only lacks its line break, as some editors leave it, is kept.

    :param path: file to append to. It is made, with its folder, if it does not exist.
    :param lines: any number of lines, without line breaks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        end = file.seek(_end_of_last_line(file))
        if is_json_object(file.read()):
            file.write(b"\n")
        else:
            file.truncate(end)
        file.write("".join(f"{line}\n" for line in lines).encode())
        file.flush()
        os.fsync(file.fileno())


def is_json_object(line: bytes) -> bool:
    """Return whether a line holds a whole JSON object. Any part of one is none.

    :param line: line of a file, with or without its line break.
    """
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def whole_lines(path: Path) -> str:
    """Read the whole lines of a text file.

    :param path: file that :func:`append_lines` or another program appends to.
    :return: its text, up to the last line break. What follows is a line that a killed program did not finish.
    """
    content = path.read_bytes()
    return content[: content.rfind(b"\n") + 1].decode()


def _end_of_last_line(file: BinaryIO, block: int = 4096) -> int:
    """Return the position behind the last line break, or 0."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - block)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def existing_folder(path: Path) -> Path:
    """Return the nearest folder that is there already: the path itself, or one that it is or would be in.

    :param path: folder to write, or to write into.
    :raises FileExistsError: if a file is in the place of a folder.
    """
    place = next(one for one in (path, *path.parents) if os.path.lexists(one))
    if not place.is_dir():
        raise FileExistsError(f"{place} is a file, so {path} cannot be written: name another folder")
    return place


def check_archive(archive: zipfile.ZipFile) -> None:
    """Check that an archive holds what was written to it, by reading all of it.

    :param archive: archive to read.
    :raises zipfile.BadZipFile: if a file in it is not what was written; the message names the file.
    """
    if damaged := archive.testzip():
        raise zipfile.BadZipFile(f"its {damaged} is not what was written")


def numbered(folder: Path) -> dict[int, Path]:
    """Return the folders in a folder whose names are numbers, in their order.

    A name with a zero in front, such as 007, is none.

    :param folder: folder to look into; it need not exist.
    """
    if not folder.is_dir():
        return {}
    named = [one for one in folder.iterdir() if one.name.isdecimal() and one.name == str(int(one.name))]
    return dict(sorted((int(one.name), one) for one in named if one.is_dir()))


def claim_number(folder: str | Path) -> Path:
    """Make a folder that no other program has, named by the next number.

    :param folder: folder of the numbered folders. It is made if it does not exist.
    :return: the new folder, e.g. ``folder/3``.
    :raises OSError: if the folder cannot be made; the message says which.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise type(error)(
            f"no folder can be made at {folder.absolute()} ({error.strerror}): name another one for the runs"
        ) from error
    number = max(numbered(folder), default=0)
    while True:
        number += 1
        try:
            (folder / str(number)).mkdir()
        except FileExistsError:  # another program was faster
            continue
        return folder / str(number)

"""Write a page that shows a run: ``lmpolicy report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmpolicy.cli.options import Json


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folder of a run, or several to show side by side.")
    ],
    output: Annotated[
        Path | None, typer.Option(help="File to write.", show_default="report.html in the first folder")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.", show_default="names of the runs")] = None,
    json: Json = False,
) -> None:
    """Write one HTML page that shows how runs learnt, and their episodes turn by turn.

    The page needs no network and may be sent to others.
    """
    from lmpolicy.cli.told import tell
    from lmpolicy.report.page import write_report

    file = write_report(runs, output, title=title)
    tell({"report": str(file), "bytes": file.stat().st_size}, f"{file}: open it in a browser", json)

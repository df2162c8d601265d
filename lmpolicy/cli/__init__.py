"""The command line: one module for each command, thin over the library."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command, and end the program.

    :param argv: arguments; by default those of the program.
    :raises SystemExit: always; its code is 0 if the command succeeded, 1 after an error, 2 for a command or an option
        that does not exist, and 130 after Ctrl-C.
    """
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
        import yaml  # noqa: F401
    except ImportError as error:
        raise SystemExit(f'{error}; the command line needs: pip install "lmpolicy[cli]"') from None
    from lmpolicy.cli.app import run

    run(argv)

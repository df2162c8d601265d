"""Numbers of a command line, as types of argparse."""

import argparse


def positive(text: str) -> int:
    """Read a number that is 1 or more.

    :param text: what was typed.
    """
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def count(text: str) -> int:
    """Read a number that is 0 or more.

    :param text: what was typed.
    """
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number

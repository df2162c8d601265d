"""Spell numbers and texts inside the words for a larger value."""

from __future__ import annotations

import unicodedata
from numbers import Integral, Real
from typing import Any, Final

import numpy as np

WHOLE_TEXT: Final = 0
LINE: Final = 1
CLAUSE: Final = 2
"""The places where words can stand; see :mod:`lmpolicy.text.describing`."""


FEWEST_DIGITS: Final = 3
"""A number has so many significant digits, unless more are asked for."""
_LAST_FRACTION = 1e15
"""A float64 has no digits behind the point that mean something beyond this number."""


def format_number(number: Any, *, digits: int = FEWEST_DIGITS, decimals: int | None = None) -> str:
    """Write a number with few tokens.

    Integers are exact. Other numbers have three significant digits, but up to seven digits before the decimal point
    are all kept, because a float32 knows so many. Below 0.0001 and from 10 million on, the number has an exponent,
    which is shorter and as exact.

    Example:
        >>> [format_number(x) for x in (2**63, 1234.5678, -0.021349, 1e-12, float("-inf"))]
        ['9223372036854775808', '1235', '-0.0213', '1e-12', '-infinity']
        >>> format_number(1234.5678, digits=6), format_number(1234.5678, decimals=1)
        ('1234.57', '1234.6')

    :param number: an integer, float or bool of Python or NumPy, or an array of shape ()
    :param digits: number of significant digits, 3 or more
    :param decimals: largest number of digits behind the point, in place of significant digits; zeros at the end are
        left out. From 1e15 on, the number has an exponent all the same
    :return: the number; bools as ``"1"`` and ``"0"``, like the numbers of a ``MultiBinary``
    :raises TypeError: if it is no real number
    """
    if isinstance(number, np.ndarray) and number.shape == ():
        number = number[()]
    if isinstance(number, (Integral, np.bool_)):
        return str(int(number))
    if not isinstance(number, Real):
        raise TypeError(f"format_number requires a real number, got {type(number).__name__}: {number!r}")
    if not isinstance(number, np.floating):
        number = float(number)
    if np.isnan(number):
        return "nan"
    if np.isinf(number):
        return "infinity" if number > 0 else "-infinity"
    if number == 0:
        return "0"  # -0.0 as well
    magnitude = abs(float(number))
    if decimals is not None and magnitude < _LAST_FRACTION:
        return _fixed_point(float(number), decimals)
    if 1e-4 <= magnitude < 100:
        return f"{float(number):.{digits}g}"
    if 100 <= magnitude < 1e7:
        return _fixed_point(float(number), max(0, digits - len(str(int(magnitude)))))
    # NumPy's formatter, because Python's would turn a longdouble beyond 1.8e308 into infinity.
    text = np.format_float_scientific(number, precision=digits - 1, unique=False, trim="-", exp_digits=1)
    return text.replace("e+", "e").replace(".e", "e")  # for a longdouble it leaves "1.e+400"


def _fixed_point(number: float, decimals: int) -> str:
    """Write a number without exponent, and without zeros at its end."""
    text = f"{number:.{decimals}f}"
    text = text.rstrip("0").rstrip(".") if decimals else text
    return "0" if text == "-0" else text


def text_words(text: str, place: int) -> str:
    """Put a text in quotes, unless it is clear without.

    The quotes are double quotes, with backslash escapes inside.

    :param text: any string
    :param place: ``WHOLE_TEXT``, ``LINE`` or ``CLAUSE``
    """
    # Line breaks belong to a text that stands alone (a text game's screen), and would break up a larger one.
    allowed = "\n\r\t" if place == WHOLE_TEXT else ""
    clear = (
        text.strip() != ""
        and all(character in allowed or not _breaks_text(character) for character in text)
        and not (text[0] == text[-1] == '"')
        and (place == WHOLE_TEXT or text == text.strip())
        and not (place == CLAUSE and any(character in ';:,()[]"' for character in text))
    )
    if clear:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c.encode("unicode_escape").decode() if _breaks_text(c) else c for c in escaped) + '"'


def _breaks_text(character: str) -> bool:
    # Control characters, lone surrogates (not encodable as UTF-8), line and paragraph separators. Not
    # str.isprintable: it refuses no-break spaces and the joiners that Persian, Hindi and emoji need.
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")

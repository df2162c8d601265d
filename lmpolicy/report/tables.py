"""Write decisions as HTML tables for a notebook; all text in them is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from lmpolicy.training.turns import Turn

MOST_TURNS = 200
"""Number of turns of an episode that a notebook shows."""
MOST_PHRASES = 6
"""Number of phrases of a turn that a table of episodes shows, the likeliest first."""
LEFT = ' style="text-align:left;vertical-align:top"'
TEXT = ' style="text-align:left;vertical-align:top;white-space:pre-wrap;overflow-wrap:anywhere"'


def episodes_table(episodes: Iterable[Sequence[Turn]]) -> str:
    """Return the turns of episodes as tables that unfold.

    :param episodes: turns of each episode.
    """
    return "".join(_episode(number, turns, is_open=number == 0) for number, turns in enumerate(episodes))


def shares_table(probabilities: Mapping[str, float | None], action: str | None) -> str:
    """Return the probabilities of phrases as a table with bars.

    :param probabilities: probability of each phrase; None where it is not known.
    :param action: phrase that is taken.
    """
    rows = "".join(
        f"<tr><td{LEFT}>{_phrase(phrase, phrase == action)}</td><td>{_number(share, '.3f')}</td>"
        f"<td{LEFT}>{_bar(share)}</td></tr>"
        for phrase, share in probabilities.items()
    )
    head = f"<tr><th{LEFT}>action phrase</th><th>probability</th><th></th></tr>"
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def messages_block(messages: Iterable[Mapping[str, str]]) -> str:
    """Return the messages of a prompt.

    :param messages: messages with ``role`` and ``content``.
    """
    rows = "".join(
        f"<tr><td{LEFT}>{escape(one['role'])}</td><td{TEXT}>{escape(one['content'])}</td></tr>" for one in messages
    )
    return f"<table><tbody>{rows}</tbody></table>"


def _episode(number: int, turns: Sequence[Turn], is_open: bool) -> str:
    total = sum(turn.env_reward or 0.0 for turn in turns)
    head = "".join(f"<th{LEFT}>{name}</th>" for name in ("turn", "read", "action", "probabilities", "value", "reward"))
    rows = "".join(map(_row, range(len(turns)), turns[:MOST_TURNS]))
    left = len(turns) - MOST_TURNS
    more = f"<p>{left} more turns are in the file.</p>" if left > 0 else ""
    return (
        f"<details{' open' if is_open else ''}><summary>episode {number}: {len(turns)} turns, return {total:.4g}"
        f"</summary><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}</details>"
    )


def _row(number: int, turn: Turn) -> str:
    done = turn.action if turn.answer is None else turn.answer
    known = {phrase: share for phrase, share in turn.probabilities.items() if share is not None}
    best = sorted(known, key=lambda phrase: -known[phrase])[:MOST_PHRASES]
    shares = ", ".join(f"{_phrase(phrase, phrase == turn.action)} {known[phrase]:.3f}" for phrase in best)
    cells = [
        f"<td>{number}</td>",
        f"<td{TEXT}>{escape(turn.messages[-1]['content'])}</td>",
        f"<td{TEXT}>{escape('(illegal)' if done is None else done)}</td>",
        f"<td{LEFT}>{shares}</td>",
        f"<td>{_number(turn.value, '.4g')}</td>",
        f"<td>{_number(turn.env_reward, '.4g')}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _phrase(phrase: str, is_taken: bool) -> str:
    return f"<b>{escape(phrase)}</b>" if is_taken else escape(phrase)


def _bar(share: float | None) -> str:
    width = 0.0 if share is None else 10 * share
    return f'<div style="width:{width:.2f}em;height:0.8em;background:currentColor;opacity:0.6"></div>'


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)

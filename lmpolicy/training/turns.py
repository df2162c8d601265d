"""Write turns for people to read: as a table in Markdown, and as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from lmpolicy.files import append_lines
from lmpolicy.text.prompt import Prompt
from lmpolicy.text.spaces import decode_bytes, replace_surrogates


@dataclass(frozen=True)
class Turn:
    """Hold one turn: the prompt, the probabilities, the action and its reward.

    What is ``None`` from :attr:`episode` on is not known, and not written to files.
    """

    env_step: int
    """Number of env steps of the training, over all envs, when the action was taken."""
    env: int
    """Index of the env."""
    messages: list[dict[str, str]]
    """Messages of the prompt, each with ``role`` and ``content``."""
    probabilities: Mapping[str, float | None]
    """Probability of each legal phrase; None where the player tells none. Empty if the policy writes."""
    action: str | None
    """Phrase that was taken. None: the action's index, or the answer, names no legal phrase. At a parse error, it is
    what the env was given instead."""
    env_reward: float | None
    """Reward as the env gave it. It is not scaled, and does not include the value that SB3 adds where an episode is cut
    off. None: no env was given the action."""
    value: float | None
    """Value of the prompt, from the critic. None: there is no critic."""
    answer: str | None = None
    """Text that the policy wrote, if it writes. ``action`` is then the phrase that was read from the answer."""
    episode: int | None = None
    """Number of the episode. Turns of one episode are in their order. None: the turn stands alone."""
    turn: int | None = None
    """Place of the turn in its episode, from 0."""
    episode_return: float | None = None
    """Sum of the rewards of the episode, as the env gave them."""
    advantage: float | None = None
    """Advantage of the action, as the update was given it. It is in the units of the rewards that the learner sees."""
    parse_error: bool | None = None
    """Whether the answer named no legal action."""
    clipped: bool | None = None
    """Whether a number in the answer was out of bounds."""
    truncated: bool | None = None
    """True where the episode was cut off after this turn."""
    env_id: str | None = None
    """Name of the env, where one learner has several."""
    greedy: bool | None = None
    """Whether the most likely action was taken. False: it was sampled."""
    picture: str | None = None
    """What the env showed before the action, as a PNG in base64."""

    @classmethod
    def of(
        cls,
        key: bytes,
        probabilities: Sequence[float],
        action: int,
        *,
        env_step: int,
        env: int,
        reward: float,
        value: float,
        answer: tuple[str | None, str | None] | None = None,
    ) -> Turn:
        """Put a decision into words.

        :param key: key of the prompt, as :func:`lmpolicy.text.spaces.row_bytes` returns it.
        :param probabilities: probability of every index of the action space, ``(K,)``.
        :param action: index that was taken.
        :param env_step: number of env steps of the training, over all envs.
        :param env: index of the env.
        :param reward: reward as the env gave it.
        :param value: value of the prompt.
        :param answer: text that was written and the phrase that was read from it. ``None``: the policy chooses phrases.
        """
        prompt = Prompt.from_json(decode_bytes(key))
        messages = [{"role": role, "content": content} for role, content in prompt.messages]
        phrases = prompt.actions
        if answer is not None:
            return cls(env_step, env, messages, {}, answer[1], reward, value, answer[0])
        known = dict(zip(phrases, probabilities[: len(phrases)], strict=True))
        return cls(env_step, env, messages, known, phrases[action] if action < len(phrases) else None, reward, value)


TURN_KEYS = tuple(one.name for one in fields(Turn))
"""What a line of a file of turns may have."""
OPTIONAL = TURN_KEYS[TURN_KEYS.index("episode") :]
"""What a line has only where it is known."""


def markdown(turns: Sequence[Turn]) -> str:
    """Write turns as a table in Markdown.

    A row of the table shows the last user message of the prompt, and the action taken in bold.

    :param turns: any number of turns.
    """
    lines = [
        "| env step | env | prompt | probabilities | action | env reward | value |",
        "|---|---|---|---|---|---|---|",
    ]
    for turn in turns:
        shares = [_share(phrase, share, phrase == turn.action) for phrase, share in turn.probabilities.items()]
        cells = [
            str(turn.env_step),
            str(turn.env),
            _cell(turn.messages[-1]["content"]),
            ", ".join(shares),
            _done(turn),
            _number(turn.env_reward),
            _number(turn.value),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write_turns(path: Path, turns: Sequence[Turn]) -> None:
    """Append turns to a file, one JSON object per line.

    :param path: file to append to. It is made, with its folder, if it does not exist. A line that a killed program did
        not finish is cut off.
    :param turns: any number of turns.
    """
    append_lines(path, map(to_line, turns))


def last_episode(path: Path) -> int:
    """Return the highest number of an episode in a file of turns; -1 where there is none.

    :param path: file that :func:`write_turns` wrote. Lines that it did not write are passed over.
    """
    found = -1
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        try:
            number = json.loads(line)["episode"]
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        found = max(found, number) if isinstance(number, int) else found
    return found


def to_line(turn: Turn) -> str:
    """Write a turn as one line of JSON, without what is not known.

    :param turn: any turn.
    """
    known = {name: value for name, value in vars(turn).items() if value is not None or name not in OPTIONAL}
    return replace_surrogates(json.dumps(known, ensure_ascii=False))


def _share(phrase: str, share: float | None, is_taken: bool) -> str:
    """Return a phrase with its probability."""
    shown = f"**{_cell(phrase)}**" if is_taken else _cell(phrase)
    return shown if share is None else f"{shown} {share:.3f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _done(turn: Turn) -> str:
    """Return the cell that shows what was done."""
    if turn.answer is not None:
        return _cell(turn.answer) + ("" if turn.action is None else f" → **{_cell(turn.action)}**")
    return "(illegal)" if turn.action is None else _cell(turn.action)


def _cell(text: str) -> str:
    """Escape a text so that it stays within its cell of a table."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r", " ").replace("\n", "<br>")

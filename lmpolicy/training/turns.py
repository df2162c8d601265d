"""Turns of a rollout for people to read: a table in Markdown, and lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lmpolicy.text.prompt import Prompt
from lmpolicy.text.spaces import decode_bytes


@dataclass(frozen=True)
class Turn:
    """One decision: what was read, what could be done how probably, what was done, and what came of it."""

    env_step: int
    """Env steps of the training, over all envs, when the action was taken."""
    env: int
    """Number of the env."""
    messages: list[dict[str, str]]
    """The prompt, with ``role`` and ``content``."""
    probabilities: dict[str, float]
    """Of each legal phrase."""
    action: str | None
    """The phrase taken; None if the action's index names no legal phrase."""
    env_reward: float
    """As the env gave it: before it was scaled, and without the value that SB3 adds where an episode is cut off."""
    value: float
    """Of the state, from the critic."""
    answer: str | None = None
    """What the policy wrote, where it writes; ``action`` is then the phrase it was read as, or None, and
    ``probabilities`` are empty."""

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

        :param key: the prompt as :func:`lmpolicy.text.spaces.row_bytes` returns it.
        :param probabilities: of every index of the action space, ``(K,)``.
        :param action: the index taken.
        :param env_step: see :class:`Turn`, as the others.
        :param env: number of the env.
        :param reward: of the env.
        :param value: of the state.
        :param answer: what was written and the phrase it was read as, where the policy writes.
        """
        prompt = Prompt.from_json(decode_bytes(key))
        messages = [{"role": role, "content": content} for role, content in prompt.messages]
        phrases = prompt.actions
        if answer is not None:
            return cls(env_step, env, messages, {}, answer[1], reward, value, answer[0])
        known = dict(zip(phrases, probabilities[: len(phrases)], strict=True))
        return cls(env_step, env, messages, known, phrases[action] if action < len(phrases) else None, reward, value)


def markdown(turns: Sequence[Turn]) -> str:
    """A table of turns, with the last user message of each prompt and the action taken in bold.

    :param turns: any number.
    """
    lines = [
        "| env step | env | prompt | probabilities | action | env reward | value |",
        "|---|---|---|---|---|---|---|",
    ]
    for turn in turns:
        shares = [
            f"**{_cell(phrase)}** {share:.3f}" if phrase == turn.action else f"{_cell(phrase)} {share:.3f}"
            for phrase, share in turn.probabilities.items()
        ]
        cells = [
            str(turn.env_step),
            str(turn.env),
            _cell(turn.messages[-1]["content"]),
            ", ".join(shares),
            _done(turn),
            f"{turn.env_reward:.4g}",
            f"{turn.value:.4g}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write_turns(path: Path, turns: Sequence[Turn]) -> None:
    """Append turns to a file, one JSON object per line.

    :param path: the file; made, with its folder, if it is not there.
    :param turns: any number.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(turn), ensure_ascii=False) + "\n" for turn in turns)


def _done(turn: Turn) -> str:
    """What was done, in a cell."""
    if turn.answer is not None:
        return _cell(turn.answer) + ("" if turn.action is None else f" → **{_cell(turn.action)}**")
    return "(illegal)" if turn.action is None else _cell(turn.action)


def _cell(text: str) -> str:
    """Text that stays within its cell of a table."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r", " ").replace("\n", "<br>")

"""Write turns of a rollout for people to read: as a table in Markdown, and as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lmpolicy.files import append_lines
from lmpolicy.text.prompt import Prompt
from lmpolicy.text.spaces import decode_bytes


@dataclass(frozen=True)
class Turn:
    """Hold one turn: the prompt, the probabilities, the action and its reward."""

    env_step: int
    """Number of env steps of the training, over all envs, when the action was taken."""
    env: int
    """Index of the env."""
    messages: list[dict[str, str]]
    """Messages of the prompt, each with ``role`` and ``content``."""
    probabilities: dict[str, float]
    """Probability of each legal phrase. Empty if the policy writes."""
    action: str | None
    """Phrase that was taken. None: the action's index, or the answer, names no legal phrase."""
    env_reward: float
    """Reward as the env gave it. It is not scaled, and does not include the value that SB3 adds where an episode is cut
    off."""
    value: float
    """Value of the prompt, from the critic."""
    answer: str | None = None
    """Text that the policy wrote, if it writes. ``action`` is then the phrase that was read from the answer."""

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

    :param path: file to append to. It is made, with its folder, if it does not exist. A line that a killed program did
        not finish is cut off.
    :param turns: any number of turns.
    """
    append_lines(path, (json.dumps(asdict(turn), ensure_ascii=False) for turn in turns))


def _done(turn: Turn) -> str:
    """Return the cell that shows what was done."""
    if turn.answer is not None:
        return _cell(turn.answer) + ("" if turn.action is None else f" → **{_cell(turn.action)}**")
    return "(illegal)" if turn.action is None else _cell(turn.action)


def _cell(text: str) -> str:
    """Escape a text so that it stays within its cell of a table."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r", " ").replace("\n", "<br>")

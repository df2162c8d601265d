"""Read and write turns as lines of JSON, in the form of chats."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lmpolicy.files import whole_file
from lmpolicy.text.prompt import CUE, Prompt
from lmpolicy.text.spaces import utf8
from lmpolicy.training.imitation.demonstration import Demonstration, EnvWords, SkippableError, forget_rewards
from lmpolicy.training.turns import TURN_KEYS

KEYS = ("messages", "actions", "cue", "action", "answer", "weight", "reward", "return", "episode", "truncated")
"""What a line may have. Only ``messages`` must be there."""
RULES = ("refuse", "count")


def read_turns(
    path: Path, words: EnvWords | None, unknown: str = "refuse", too_long: str = "refuse", only_watched: bool = False
) -> tuple[list[Demonstration], Counter[str]]:
    """Read a file of turns.

    :param path: file with a JSON object on each line. Empty lines are left out.
    :param words: env that the turns are for. ``None``: they are only compared with themselves.
    :param unknown: ``"refuse"`` or ``"count"``: what to do about a turn whose action is no legal phrase.
    :param too_long: the same about a prompt that is too long for the env.
    :param only_watched: whether all lines must be those of ``turns.jsonl``.
    :return: turns, and how many were left out, by reason.
    :raises ValueError: if a line cannot be read; the message names file and line.
    """
    counted = counted_reasons(unknown, too_long)
    turns, skipped, gaps, begun = list[Demonstration](), Counter[str](), set[Any](), set[Any]()
    for number, line in _lines(path):
        data = None
        try:
            data = _object(line)
            turn = _turn(data, only_watched)
            if turn.episode is not None and data.get("turn") == 0:
                if turn.episode in begun:  # again, after a training was killed and resumed
                    turns = [one for one in turns if one.episode != turn.episode]
                    gaps.discard(turn.episode)
                begun.add(turn.episode)
            turns.append(turn if words is None else words.fit(turn))
        except SkippableError as error:
            if error.reason not in counted:
                raise _named(path, number, error) from error
            skipped[error.reason] += 1
            gaps.add((data or {}).get("episode"))
        except (ValueError, TypeError, RecursionError) as error:
            raise _named(path, number, error) from error
    return forget_rewards(turns, gaps), skipped


def counted_reasons(unknown: str, too_long: str) -> frozenset[str]:
    """Return the reasons for which turns are counted and left out.

    :param unknown: ``"refuse"`` or ``"count"``.
    :param too_long: ``"refuse"`` or ``"count"``.
    :raises ValueError: for any other word.
    """
    for name, rule in (("unknown", unknown), ("too_long", too_long)):
        if rule not in RULES:
            raise ValueError(f"{name} must be 'refuse' or 'count', got {rule!r}")
    reasons = {"unknown phrase": unknown, "prompt too long": too_long, "answer too long": too_long}
    return frozenset(reason for reason, rule in reasons.items() if rule == "count")


def write_jsonl(path: Path, turns: Iterable[Demonstration]) -> Path:
    """Write turns to a file that appears when all of it is written.

    UTF-8 cannot hold lone surrogates, so they become U+FFFD, as in prompts.

    :param path: file to write.
    :param turns: any number of turns.
    :return: the file.
    """
    with whole_file(path) as file:
        for turn in turns:
            file.write(utf8(f"{json.dumps(_line(turn), ensure_ascii=False)}\n"))
    return path


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Return the lines of a file that are not empty, each with its number from 1."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name the file in it, e.g. {path / 'demonstrations.jsonl'}")
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line


def _named(path: Path, number: int, error: Exception) -> ValueError:
    return ValueError(f"{path}, line {number}: {error}")


def _object(line: bytes) -> dict[str, Any]:
    """Read the JSON of a line."""
    try:
        data = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"the line is no UTF-8 ({error})") from None
    except ValueError as error:
        raise ValueError(f"the line is no JSON ({error}): each line holds one whole JSON object") from None
    if not isinstance(data, dict):
        raise ValueError(f"a line holds a JSON object with {', '.join(KEYS)}; got {str(data)[:60]!r}")
    return data


def _turn(data: dict[str, Any], only_watched: bool) -> Demonstration:
    """Read the object of a line."""
    if "probabilities" in data:
        return _watched(data)
    if only_watched:
        raise ValueError("the line is not one of turns.jsonl: it has no 'probabilities'. Read it with from_jsonl")
    return _chat(data)


def _watched(data: dict[str, Any]) -> Demonstration:
    """Read a line of ``turns.jsonl`` or ``episodes.jsonl``.

    Turns of the first are single ones of many episodes, so their rewards are of no use.
    """
    _check_keys(data, frozenset(TURN_KEYS))
    probabilities = data["probabilities"]
    if not isinstance(probabilities, dict):
        raise TypeError(f"probabilities must map phrases to numbers, got {probabilities!r}")
    whole = data.get("episode") is not None
    return Demonstration(
        prompt=Prompt(_messages(data), tuple(probabilities)),
        # What the env was given for an answer that could not be read is not what the answer says.
        action=None if data.get("parse_error") else data.get("action"),
        answer=data.get("answer"),
        reward=data.get("env_reward") if whole else None,
        episode=data.get("episode"),
        truncated=data.get("truncated", False),
    )


def _chat(data: dict[str, Any]) -> Demonstration:
    """Read a line in the form of a chat."""
    _check_keys(data, frozenset(KEYS))
    messages, actions = _messages(data), data.get("actions", [])
    if not isinstance(actions, list):
        raise TypeError(f"actions must be a list of phrases, got {actions!r}")
    answer, cue = data.get("answer"), data.get("cue", CUE)
    if not isinstance(cue, str):
        raise TypeError(f"cue must be a text, got {cue!r}")
    if messages and messages[-1][0] == "assistant":
        if answer is not None or data.get("action") is not None:
            raise ValueError(
                "the last message is the assistant's, and there is an action or an answer besides: leave one of them "
                "out"
            )
        messages, answer = messages[:-1], messages[-1][1]
    optional = {name: data[name] for name in ("weight", "truncated") if name in data}
    return Demonstration(
        prompt=Prompt(messages, tuple(actions), cue),
        action=data.get("action"),
        answer=answer,
        reward=data.get("reward"),
        return_=data.get("return"),
        episode=data.get("episode"),
        **optional,
    )


def _check_keys(data: Mapping[str, Any], known: frozenset[str]) -> None:
    if "messages" not in data:
        raise ValueError('"messages" is missing: a list of {"role": ..., "content": ...}')
    strange = sorted(data.keys() - known)
    if strange:
        raise ValueError(f"unknown: {', '.join(map(repr, strange))}. A line may have {', '.join(sorted(known))}")


def _messages(data: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    messages = data["messages"]
    if not isinstance(messages, list):
        raise TypeError(f"messages must be a list, got {messages!r}")
    for one in messages:
        if not isinstance(one, dict) or not all(isinstance(one.get(key), str) for key in ("role", "content")):
            raise TypeError(f"a message has a role and a content, both of them texts; got {one!r}")
    return tuple((one["role"], one["content"]) for one in messages)


def _line(turn: Demonstration) -> dict[str, Any]:
    """Return a turn as :func:`read_turns` reads it, without what is as it is by default."""
    prompt = turn.prompt
    line: dict[str, Any] = {"messages": [{"role": role, "content": content} for role, content in prompt.messages]}
    line |= {"actions": list(prompt.actions)} if prompt.actions else {}
    values = {"cue": prompt.cue, "action": turn.action, "answer": turn.answer, "weight": turn.weight}
    values |= {"reward": turn.reward, "return": turn.return_, "episode": turn.episode, "truncated": turn.truncated}
    usual = {"cue": CUE, "weight": 1.0, "truncated": False}
    return line | {name: value for name, value in values.items() if value != usual.get(name)}

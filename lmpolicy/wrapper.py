"""TextObservationWrapper: any Gymnasium environment as text in, text out. Knows no model and imports no torch."""

from __future__ import annotations

import copy
import warnings
from collections import deque
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from lmpolicy.actions import ActionPhrases
from lmpolicy.envs import task_for
from lmpolicy.prompt import Prompt
from lmpolicy.task import GenericTask, TextTask
from lmpolicy.text_space import TextSpace, utf8

CUT_MARK = " [... cut]"


class TextObservationWrapper(gym.Wrapper, RecordConstructorArgs):
    """Turn an environment into text: observations become prompts, actions become phrases.

    Example:
        >>> import gymnasium as gym
        >>> env = TextObservationWrapper(gym.make("Blackjack-v1"))
        >>> observation, info = env.reset(seed=0)
        >>> prompt = env.prompt
        >>> prompt.actions
        ('stick', 'hit')
        >>> observation, reward, terminated, truncated, info = env.step("stick")
        >>> info["action_text"]
        'stick'

    ``info`` gains ``action_text`` (the phrase taken, after a step) and ``prompt_truncated`` (how many prompts of this
    env had to be shortened so far).

    :param env: the env to wrap. Its actions: Discrete, MultiDiscrete, MultiBinary, Box with ``action_bins``; or any
        space for which the task maps phrases to actions.
    :param task: how the env reads as text. ``None``: the bundled task for the env's id, else :class:`GenericTask`.
        The instance is copied, so several envs may be given the same one.
    :param history: how many past turns (observation and phrase) the prompt repeats before the current observation.
    :param max_prompt_bytes: length of an observation row. What does not fit is left out: the oldest turns first, then
        the end of the observation, with a visible mark; never the system prompt or a phrase.
    :param action_bins: for Box actions: number of values per dimension, one int or one per dimension.
    :param max_actions: largest number of phrases in a prompt. Default: the task's ``max_actions``, else 64 for
        products of several dimensions and no limit for Discrete.
    :param n_actions: width of the action space, at least the number of phrases: puts envs with different numbers of
        phrases side by side, see :func:`lmpolicy.make_multi_env`. The policy gives the surplus indices probability 0;
        ``action_space.sample()``, and with it the env checkers of Gymnasium and SB3, may draw one, which
        :meth:`step` refuses. Default: the number of phrases.
    :param render_mode: ``"ansi"``: :meth:`render` returns what the agent reads. Default: that of the env (where
        ``"ansi"`` means the prompt, too).
    :raises TypeError: if ``env`` is not a single Gymnasium env, or its actions cannot be listed.
    :raises ValueError: if the system prompt and the phrases alone do not fit (the message says what would), or the
        task does not fit the env.
    """

    def __init__(
        self,
        env: gym.Env,
        task: TextTask | type[TextTask] | None = None,
        *,
        history: int = 0,
        max_prompt_bytes: int = 2048,
        action_bins: int | Sequence[int] | None = None,
        max_actions: int | None = None,
        n_actions: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        _check_env(env)
        if isinstance(history, bool) or not isinstance(history, int) or history < 0:
            raise ValueError(f"history is the number of past turns in the prompt, 0 or more; got {history!r}")
        if render_mode not in (None, "ansi"):
            raise ValueError(f'render_mode of this wrapper is "ansi" or None (as the env), got {render_mode!r}')
        RecordConstructorArgs.__init__(
            self,
            task=task,
            history=history,
            max_prompt_bytes=max_prompt_bytes,
            action_bins=action_bins,
            max_actions=max_actions,
            n_actions=n_actions,
            render_mode=render_mode,
        )
        gym.Wrapper.__init__(self, env)
        self.task = _own_task(task, env)
        self.task.bind(env)
        self._mode = render_mode
        if render_mode == "ansi" and "ansi" not in self.metadata.get("render_modes", []):
            self.metadata = {
                **self.metadata,
                "render_modes": [*self.metadata.get("render_modes", []), "ansi"],
            }
        self._turns: deque[tuple[str, str]] = deque(maxlen=history)
        self._observation_text = ""
        self._truncated_prompts = 0
        self._prompt: Prompt | None = None
        self._legal: dict[str, Any] = {}
        self._space = TextSpace(max_prompt_bytes)
        self.observation_space = self._space
        self._phrases = ActionPhrases(self.task, env.action_space, action_bins, max_actions)
        self.action_space = spaces.Discrete(_width(n_actions, self._phrases.width))
        self._system_prompt = _expressible(self.task.system_prompt)
        # Too small a row is found here, not at the first step. Phrases of a state are not known yet: any one stands in.
        self._fit(CUT_MARK, tuple(self._phrases.fixed or ("?",)))

    @property
    def prompt(self) -> Prompt:
        """What the agent reads now.

        :raises gymnasium.error.ResetNeeded: before the first reset.
        """
        if self._prompt is None:
            raise gym.error.ResetNeeded("there is no prompt before env.reset()")
        return self._prompt

    @property
    def render_mode(self) -> str | None:  # type: ignore[override]
        """``"ansi"`` if asked for, else the env's."""
        return self._mode or self.env.render_mode

    def render(self) -> Any:
        """What the agent reads, if the render mode is ``"ansi"``; else what the env renders."""
        return str(self.prompt) if self.render_mode == "ansi" else super().render()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start an episode; the history is empty again.

        :param seed: as in Gymnasium.
        :param options: as in Gymnasium.
        """
        observation, info = self.env.reset(seed=seed, options=options)
        self._turns.clear()
        row = self._read(observation, info, ended=False)
        return row, {**info, "prompt_truncated": self._truncated_prompts}

    def step(
        self, action: int | np.integer | NDArray[Any] | str
    ) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Take an action, given as its index among the legal phrases or as the phrase itself.

        :param action: index, NumPy integer (also a 0-d array, as ``model.predict`` returns), or phrase.
        :raises TypeError: if it is none of these.
        :raises ValueError: if it is not legal now; the message lists what is.
        """
        phrase = self._phrase(action)
        # A copy, because an env that clips or scales its action in place would change what the phrase stands for.
        env_action = copy.deepcopy(self._legal[phrase])
        observation, reward, terminated, truncated, info = self.env.step(env_action)
        self._turns.append((self._observation_text, phrase))
        row = self._read(observation, info, ended=bool(terminated or truncated))
        info = {**info, "action_text": phrase, "prompt_truncated": self._truncated_prompts}
        # An int reward would turn SubprocVecEnv's reward array into int64, which reward shaping cannot write into.
        return row, float(reward), bool(terminated), bool(truncated), info

    def encode(self, observation: Any, info: dict[str, Any] | None = None) -> NDArray[np.uint8]:
        """The row of any observation, for asking a model what it would do there; the env stays where it is.

        Example:
            >>> env = TextObservationWrapper(gym.make("Blackjack-v1"))
            >>> row = env.encode((20, 10, 0))  # action, _ = model.predict(row)

        :param observation: a value of the env's own observation space.
        :param info: the env's info, if the task's phrases depend on it.
        :return: uint8 row; its history is that of the running episode.
        """
        text, legal = self._words(observation), self._phrases.legal(observation, info or {})
        return self._fit(text, tuple(legal))[1]

    def _words(self, observation: Any) -> str:
        """The task's words for an observation."""
        text = self.task.format_observation(observation)
        if not isinstance(text, str):
            raise TypeError(f"{type(self.task).__name__}.format_observation must return str, got {type(text).__name__}")
        return _expressible(text)

    def _read(self, observation: Any, info: dict[str, Any], ended: bool) -> NDArray[np.uint8]:
        """Put the observation into words and build the prompt; return its row."""
        text = self._words(observation)
        # No action follows the end of an episode, and some envs then offer none: the last phrases stand in.
        self._legal = self._phrases.legal(observation, info) or (self._legal if ended else {})
        if not self._legal:
            raise ValueError(
                f"{type(self.task).__name__}.action_texts returned no phrase although the episode goes on: return what "
                "is legal now, e.g. a phrase for doing nothing, or let the env end the episode"
            )
        self._observation_text = text
        self._prompt, row = self._fit(text, tuple(self._legal))
        return row

    def _fit(self, text: str, phrases: tuple[str, ...]) -> tuple[Prompt, NDArray[np.uint8]]:
        """The prompt for an observation, shortened until it fits, and its row."""
        room = self._space.max_bytes
        turns = list(self._turns)
        prompt, written, size = self._write(turns, text, phrases)
        whole = size <= room
        while size > room and turns:
            turns.pop(0)
            prompt, written, size = self._write(turns, text, phrases)
        if size > room:
            kept = text[:room]  # a character takes at least a byte
            prompt, written, size = self._write(turns, kept + CUT_MARK, phrases)
            while size > room and kept:
                # and at most six, as \uXXXX in JSON: never cut more than the surplus asks for
                kept = kept[: -max(1, (size - room) // 6)]
                prompt, written, size = self._write(turns, kept + CUT_MARK, phrases)
        if size > room:
            raise ValueError(
                f"the system prompt and the action phrases alone need {size} bytes, but max_prompt_bytes is {room}: "
                f"pass max_prompt_bytes={size} plus room for the observation, or shorten them"
            )
        if not whole:
            self._count_truncation(room)
        return prompt, self._space.encode(written)

    def _write(self, turns: list[tuple[str, str]], text: str, phrases: tuple[str, ...]) -> tuple[Prompt, str, int]:
        """The prompt of these parts, its JSON, and the size of that in bytes."""
        listing = f"Possible actions: {', '.join(phrases)}." if self.task.list_actions else ""
        system = self._system_prompt
        if self._phrases.fixed is not None:
            system = " ".join(part for part in (system, listing) if part)
        else:
            text = "\n".join(part for part in (text, listing) if part)
        messages = [("system", system)] if system else []
        for past, phrase in turns:
            messages += [("user", past), ("assistant", phrase)]
        prompt = Prompt((*messages, ("user", text)), phrases)
        written = prompt.to_json()
        return prompt, written, len(utf8(written))

    def _count_truncation(self, room: int) -> None:
        self._truncated_prompts += 1
        if self._truncated_prompts == 1:
            warnings.warn(
                f"a prompt did not fit into max_prompt_bytes={room} and was shortened (oldest history first, then the "
                'observation); counted in info["prompt_truncated"], not warned of again',
                stacklevel=2,
            )

    def _phrase(self, action: Any) -> str:
        """The phrase that an action stands for."""
        if not self._legal:
            raise gym.error.ResetNeeded("call env.reset() before env.step()")
        if isinstance(action, str):
            if action not in self._legal:
                raise ValueError(f"{action!r} is not a legal action now; legal are: {self._listing()}")
            return str(action)
        # Lists are kept from NumPy, which has an error of its own for ragged ones.
        array = np.asarray(None if isinstance(action, list | tuple) else action)
        if array.shape != () or not np.issubdtype(array.dtype, np.integer):
            raise TypeError(
                f"an action is an index (int) or a phrase (str), got {action!r} ({type(action).__name__}); "
                f"legal are: {self._listing()}"
            )
        if not 0 <= int(array) < len(self._legal):
            raise ValueError(f"action index {int(array)} is not legal now; legal are: {self._listing()}")
        return tuple(self._legal)[int(array)]

    def _listing(self) -> str:
        return ", ".join(f"{index} {phrase!r}" for index, phrase in enumerate(self._legal))


def _check_env(env: Any) -> None:
    if not isinstance(env, gym.Env):
        hint = (
            "; wrap each env inside it: make_vec_env(env_id, wrapper_class=TextObservationWrapper)"
            if hasattr(env, "num_envs")
            else ""
        )
        raise TypeError(f"TextObservationWrapper wraps a single gymnasium.Env, got {type(env).__name__}{hint}")
    layer: gym.Env | None = env
    while isinstance(layer, gym.Wrapper):
        if isinstance(layer, TextObservationWrapper):
            raise TypeError("this env is already inside a TextObservationWrapper; wrap it only once")
        layer = layer.env


def _width(n_actions: int | None, phrases: int) -> int:
    """Width of the action space of an env with so many phrases."""
    if n_actions is None:
        return phrases
    if isinstance(n_actions, bool) or not isinstance(n_actions, int | np.integer) or n_actions < phrases:
        raise ValueError(
            f"n_actions is the width of the action space, an integer no smaller than the number of phrases, which is "
            f"{phrases} here; got {n_actions!r}: pass n_actions={phrases} or more, or leave it out"
        )
    return int(n_actions)


def _expressible(text: str) -> str:
    """The text as it comes back from a row, so that :attr:`TextObservationWrapper.prompt` is what the policy reads."""
    return utf8(text).decode()


def _own_task(task: TextTask | type[TextTask] | None, env: gym.Env) -> TextTask:
    """A task that belongs to this env alone: binding it may store the env's own map."""
    if isinstance(task, type) and issubclass(task, TextTask):
        return task()
    if task is None:
        return task_for(env) or GenericTask()
    if not isinstance(task, TextTask):
        raise TypeError(f"task must be a TextTask, got {type(task).__name__}")
    return copy.deepcopy(task)

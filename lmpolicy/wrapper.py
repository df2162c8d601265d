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

from lmpolicy.envs import task_for
from lmpolicy.text.answers import Answer, Answers
from lmpolicy.text.phrases import ActionPhrases, phrase_of, space_width
from lmpolicy.text.prompt import CUE, Prompt
from lmpolicy.text.prompt_composer import CUT_MARK, PromptComposer
from lmpolicy.text.spaces import TextSpace, replace_surrogates
from lmpolicy.text.task import GenericTask, TextTask

MODES = ("score", "generate")
THINKING_CUE = "Thought:"
"""What a model without a chat template reads before it thinks."""


class TextObservationWrapper(gym.Wrapper, RecordConstructorArgs):
    """Turn an environment into text: observations become prompts, actions become phrases or free text.

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

    With ``action_mode="generate"``, the answer is free text. An action is then the row of its token ids (or, for
    people, the text itself), and is read by :meth:`TextTask.extract_action`, by default
    :func:`lmpolicy.text.parsing.extract_action`. ``info`` then gains ``answer`` (the text), ``parse_error`` and
    ``action_clipped`` (whether it named no legal action, or a number out of bounds); the history holds answers.

    Example:
        >>> env = TextObservationWrapper(gym.make("Blackjack-v1"), action_mode="generate")
        >>> observation, info = env.reset(seed=0)
        >>> observation, reward, terminated, truncated, info = env.step("The dealer is strong. Action: hit")
        >>> info["action_text"], info["parse_error"]
        ('hit', False)

    :param env: the env to wrap. Its actions: Discrete, MultiDiscrete, MultiBinary, Box with ``action_bins``; or any
        space for which the task maps phrases to actions. With ``action_mode="generate"`` also Box without bins and
        Text; all but Discrete are then answered with numbers or text, unless the task has phrases for them.
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
    :param action_mode: ``"score"``: the policy chooses among phrases; ``"generate"``: it writes. The parameters below
        are for the latter.
    :param tokenizer: of the policy's model: hub id, local folder or Transformers tokenizer; ``None``: the bundled LM's.
    :param max_new_tokens: longest answer in tokens.
    :param close_with_phrase: end each answer with ``Action:`` and a legal phrase, which the policy chooses by score, so
        that every answer can be read; what stands before is free.
    :param on_parse_error: what the env is given for an answer that names no legal action. ``"penalize"``:
        ``fallback_action``, and ``parse_error_reward`` is added to its reward; ``"random"``: a random legal action;
        ``"raise"``: nothing, :class:`~lmpolicy.text.parsing.ParseError` is raised.
    :param parse_error_reward: by default -1; choose it in proportion to the env's rewards.
    :param fallback_action: a phrase or an action of the env. Default: the first legal phrase, or where there are no
        phrases the action nearest to 0.
    :raises TypeError: if ``env`` is not a single Gymnasium env, or its actions cannot be listed.
    :raises ValueError: if the system prompt and the phrases alone do not fit (the message says what would), or the
        task does not fit the env, or a parameter is out of range.
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
        action_mode: str = "score",
        tokenizer: Any = None,
        max_new_tokens: int = 32,
        close_with_phrase: bool = False,
        on_parse_error: str = "penalize",
        parse_error_reward: float = -1.0,
        fallback_action: Any = None,
    ) -> None:
        _check_env(env)
        if action_mode not in MODES:
            raise ValueError(f'action_mode must be "score" or "generate", got {action_mode!r}')
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
            action_mode=action_mode,
            tokenizer=tokenizer,
            max_new_tokens=max_new_tokens,
            close_with_phrase=close_with_phrase,
            on_parse_error=on_parse_error,
            parse_error_reward=parse_error_reward,
            fallback_action=fallback_action,
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
        self._history: deque[tuple[str, str]] = deque(maxlen=history)
        self._past_text = ""
        self._truncated_prompts = 0
        self._prompt: Prompt | None = None
        self._legal: dict[str, Any] = {}
        self._space = TextSpace(max_prompt_bytes)
        self.observation_space = self._space
        self._phrases: ActionPhrases | None = None
        if action_mode == "score" or close_with_phrase or self._has_phrases(action_bins):
            self._phrases = ActionPhrases(self.task, env.action_space, action_bins, max_actions)
        fixed = self._phrases.fixed if self._phrases is not None else {}
        self._answers: Answers | None = None
        instruction, cue = "", CUE
        if action_mode == "score":
            assert self._phrases is not None
            self.action_space: spaces.Space = spaces.Discrete(space_width(n_actions, self._phrases.width))
        else:
            closing = self._phrases if close_with_phrase else None
            width = 0 if closing is None else space_width(n_actions, closing.width)
            self._answers = Answers(
                *(self.task, env.action_space, tokenizer, max_new_tokens, on_parse_error, parse_error_reward),
                *(fallback_action, width),
            )
            if fixed is not None:
                self._answers.check_fallback(fixed)
            self.action_space = self._answers.space
            instruction = self._answers.instruction(fixed is None or bool(fixed))
            cue = self.task.cue or (THINKING_CUE if close_with_phrase else CUE)
        self._random = np.random.default_rng()
        self._composer = PromptComposer(
            self._space,
            self.task.system_prompt,
            instruction,
            None if fixed is None else tuple(fixed),
            self.task.list_actions,
            cue,
        )
        # Too small a row is found here, not at the first step. Phrases of a state are not known yet: any one stands in.
        self._composer.compose((), CUT_MARK, ("?",) if fixed is None else tuple(fixed))

    def _has_phrases(self, action_bins: Any) -> bool:
        """Whether free text is to name a phrase, rather than numbers or a text of its own."""
        return (
            isinstance(self.env.action_space, spaces.Discrete)
            or self.task.action_texts is not None
            or action_bins is not None
        )

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
        self._history.clear()
        if seed is not None:
            self._random = np.random.default_rng(seed)
        row = self._read(observation, info, ended=False)
        return row, {**info, "prompt_truncated": self._truncated_prompts}

    def step(
        self, action: int | np.integer | NDArray[Any] | str
    ) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Take an action, given as its index among the legal phrases or as the phrase itself.

        With ``action_mode="generate"``: given as a row of token ids or as text.

        :param action: index, NumPy integer (also a 0-d array, as ``model.predict`` returns), or phrase.
        :raises TypeError: if it is none of these.
        :raises ValueError: if it is not legal now; the message lists what is.
        """
        answer = self.read_answer(action)
        # A copy, because an env that clips or scales its action in place would change what the phrase stands for.
        observation, reward, terminated, truncated, info = self.env.step(copy.deepcopy(answer.action))
        self._history.append((self._past_text, replace_surrogates(answer.text)))
        row = self._read(observation, info, ended=bool(terminated or truncated))
        info = {**info, "prompt_truncated": self._truncated_prompts}
        if answer.phrase is not None:
            info["action_text"] = answer.phrase
        if self._answers is not None:
            info |= {"answer": answer.text, "parse_error": answer.parse_error, "action_clipped": answer.clipped}
            reward = float(reward) + self._answers.penalty * answer.parse_error
        # An int reward would turn SubprocVecEnv's reward array into int64, which reward shaping cannot write into.
        return row, float(reward), bool(terminated), bool(truncated), info

    def read_answer(self, action: int | np.integer | NDArray[Any] | str) -> Answer:
        """What an action means in words, and what the env would be given for it now; the env stays where it is.

        Example:
            >>> env = TextObservationWrapper(gym.make("Blackjack-v1"), action_mode="generate")
            >>> observation, info = env.reset(seed=0)
            >>> env.read_answer("I stick.").action  # or the row that model.predict(observation) returns
            0

        :param action: as for :meth:`step`.
        """
        if self._prompt is None or (self._phrases is not None and not self._legal):
            raise gym.error.ResetNeeded("call env.reset() before env.step()")
        if self._answers is not None:
            return self._answers.read(action, self._legal, self._random)
        phrase = phrase_of(action, self._legal)
        return Answer(phrase, self._legal[phrase], phrase)

    def encode(self, observation: Any, info: dict[str, Any] | None = None) -> NDArray[np.uint8]:
        """The row of any observation, for asking a model what it would do there; the env stays where it is.

        Example:
            >>> env = TextObservationWrapper(gym.make("Blackjack-v1"))
            >>> row = env.encode((20, 10, 0))  # action, _ = model.predict(row)

        :param observation: a value of the env's own observation space.
        :param info: the env's info, if the task's phrases depend on it.
        :return: uint8 row; its history is that of the running episode.
        """
        text = self._words("format_observation", observation)
        return self._fit(text, tuple(self._legal_in(observation, info or {})))[1]

    def _legal_in(self, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        """The legal phrases of a state, each with its env action; empty where the actions have no phrases."""
        return {} if self._phrases is None else self._phrases.legal(observation, info)

    def _words(self, method: str, observation: Any) -> str:
        """The task's words for an observation, by one of its methods."""
        text = getattr(self.task, method)(observation)
        if not isinstance(text, str):
            raise TypeError(f"{type(self.task).__name__}.{method} must return str, got {type(text).__name__}")
        return replace_surrogates(text)

    def _read(self, observation: Any, info: dict[str, Any], ended: bool) -> NDArray[np.uint8]:
        """Put the observation into words and build the prompt; return its row."""
        text = self._words("format_observation", observation)
        # No action follows the end of an episode, and some envs then offer none: the last phrases stand in.
        self._legal = self._legal_in(observation, info) or (self._legal if ended else {})
        if not self._legal and self._phrases is not None:
            raise ValueError(
                f"{type(self.task).__name__}.action_texts returned no phrase although the episode goes on: return what "
                "is legal now, e.g. a phrase for doing nothing, or let the env end the episode"
            )
        if self._history.maxlen:
            own = type(self.task).format_past is not TextTask.format_past
            self._past_text = self._words("format_past", observation) if own else text
        self._prompt, row = self._fit(text, tuple(self._legal))
        return row

    def _fit(self, text: str, phrases: tuple[str, ...]) -> tuple[Prompt, NDArray[np.uint8]]:
        """The prompt for an observation, shortened until it fits, and its row."""
        prompt, row, shortened = self._composer.compose(self._history, text, phrases)
        self._truncated_prompts += shortened
        if shortened and self._truncated_prompts == 1:
            room = self._composer.space.max_bytes
            warnings.warn(
                f"a prompt did not fit into max_prompt_bytes={room} and was shortened (oldest "
                'history first, then the observation); counted in info["prompt_truncated"], not warned of again',
                stacklevel=2,
            )
        return prompt, row


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


def _own_task(task: TextTask | type[TextTask] | None, env: gym.Env) -> TextTask:
    """A task that belongs to this env alone: binding it may store the env's own map."""
    if isinstance(task, type) and issubclass(task, TextTask):
        return task()
    if task is None:
        return task_for(env) or GenericTask()
    if not isinstance(task, TextTask):
        raise TypeError(f"task must be a TextTask, got {type(task).__name__}")
    return copy.deepcopy(task)

"""Turn any Gymnasium env into text, without model or torch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from lmpolicy.envs import task_for
from lmpolicy.text.action_masks import masked
from lmpolicy.text.action_readers import ReadAnswer
from lmpolicy.text.binding import bind_task, find_masks
from lmpolicy.text.env_checks import check_arguments
from lmpolicy.text.env_results import reset_env, step_env
from lmpolicy.text.env_words import Change, EnvWords, Reading
from lmpolicy.text.prompt import Prompt
from lmpolicy.text.spaces import TextSpace
from lmpolicy.text.task import GenericTask, TextTask, own_task
from lmpolicy.text.word_dropout import check_word_dropout, leave_out_words


class TextObservationWrapper(gym.Wrapper, RecordConstructorArgs):
    """Turn any env into text.

    Observations become prompts. Actions become phrases or free text.

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

    Two keys are added to ``info``: ``action_text``, the phrase that was taken (after a step), and
    ``prompt_truncated``, the number of prompts of this env that had to be shortened so far.

    Where the env says which actions are legal, by ``info["action_mask"]`` or by ``action_masks()`` of the env or of a
    wrapper around it, the prompt offers no others; see :attr:`TextTask.action_mask`.

    With ``action_mode="generate"``, the policy answers in free text. An action is then the row of the answer's token
    ids. People may give the text itself. :meth:`TextTask.extract_action` reads the answer. Three more keys are added to
    ``info`` after a step: ``answer``, the text; ``parse_error``, whether the text named no legal action; and
    ``action_clipped``, whether a number in it was out of bounds. The history repeats the answers.

    Example:
        >>> env = TextObservationWrapper(gym.make("Blackjack-v1"), action_mode="generate")
        >>> observation, info = env.reset(seed=0)
        >>> observation, reward, terminated, truncated, info = env.step("The dealer is strong. Action: hit")
        >>> info["action_text"], info["parse_error"]
        ('hit', False)

    :param env: the env to wrap. Its actions may be Discrete, MultiDiscrete, MultiBinary, Box with ``action_bins``, or
        of any space if the task maps phrases to actions. With ``action_mode="generate"`` also Box without bins and
        Text; the policy then answers with numbers or text, unless the actions are Discrete or the task has phrases.
    :param task: puts the env into words. ``None``: the bundled task for the env's id, or :class:`GenericTask` if there
        is none. The instance is copied, so several envs may be given the same one.
    :param history: how many past turns (observation and answer) the prompt repeats before the current observation.
    :param max_prompt_bytes: length of an observation row. What does not fit is left out: the oldest turns first, then
        the end of the observation, with a visible mark. The system prompt and the phrases are never cut.
    :param action_bins: for Box actions: number of values per dimension, one int or one per dimension.
    :param max_actions: largest number of phrases in a prompt. Default: the task's ``max_actions``; where that is
        ``None``, too, 64 for spaces of several dimensions and no limit for Discrete.
    :param n_actions: width of the action space, at least the number of phrases. It puts envs with different numbers of
        phrases side by side, see :func:`lmpolicy.make_multi_env`. The policy gives the surplus indices probability 0.
        ``action_space.sample()`` may draw a surplus index, and so may the env checkers of Gymnasium and SB3;
        :meth:`step` refuses it. Default: the number of phrases.
    :param render_mode: ``"ansi"``: :meth:`render` returns what the agent reads. Default: the env's render mode (where
        ``"ansi"`` means the prompt, too).
    :param action_mode: ``"score"``: the policy chooses among phrases. ``"generate"``: the policy writes. The parameters
        below are for ``"generate"``, but for the last two.
    :param tokenizer: the tokenizer of the policy's model: what the policy takes as ``model``, or a Transformers
        tokenizer; ``None``: that of the bundled LM.
    :param max_new_tokens: longest answer in tokens.
    :param close_with_phrase: end each answer with ``Action:`` and a legal phrase, which the policy chooses by score. So
        every answer can be read, and the policy is free in what it writes before.
    :param on_parse_error: what the env is given for an answer that names no legal action. ``"penalize"``:
        ``fallback_action``, and in training ``parse_error_reward`` is added to the env's reward. ``"random"``: a random
        legal action. ``"raise"``: nothing, and :class:`~lmpolicy.text.parsing.ParseError` is raised.
    :param parse_error_reward: by default -1; choose it in proportion to the env's rewards.
    :param fallback_action: a phrase or an action of the env. Default: the first legal phrase, or where there are no
        phrases the action nearest to 0.
    :param word_dropout: share of the words of each observation that are left out at random in training, such as 0.15.
        What a policy learns then hangs on no single word. System prompt and phrases keep all of theirs. Prompts hardly
        repeat then, which takes longer.
    :param training: ``False`` for evaluation: rewards are the env's own, without ``parse_error_reward``, so that
        ``evaluate_policy`` and ``EvalCallback`` report the env's own returns, and observations have all their words.
        Also an attribute.
    :raises TypeError: if ``env`` is not a single Gymnasium env, or its actions cannot be listed.
    :raises ValueError: if the system prompt and the phrases alone do not fit (the message says what would), or the
        task does not fit the env, or a parameter is out of range.
    """

    _now: Reading | None = None

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
        word_dropout: float = 0.0,
        training: bool = True,
    ) -> None:
        check_arguments(env, TextObservationWrapper, action_mode, history, render_mode)
        words: dict[str, Any] = {"history": history, "action_bins": action_bins, "max_actions": max_actions}
        words |= {"n_actions": n_actions, "action_mode": action_mode, "tokenizer": tokenizer}
        words |= {"max_new_tokens": max_new_tokens, "close_with_phrase": close_with_phrase}
        words |= {"on_parse_error": on_parse_error, "parse_error_reward": parse_error_reward}
        words |= {"fallback_action": fallback_action}
        given: dict[str, Any] = {"task": task, "max_prompt_bytes": max_prompt_bytes, "render_mode": render_mode}
        given |= {"word_dropout": word_dropout, "training": training}
        RecordConstructorArgs.__init__(self, **given, **words)
        gym.Wrapper.__init__(self, env)
        self._set_render_mode(render_mode)
        self.word_dropout = check_word_dropout(word_dropout)
        self.training, self._random = training, np.random.default_rng()
        self.task = own_task(task if task is not None else task_for(env) or GenericTask())
        self._action_masks = bind_task(self.task, env)
        space = self.observation_space = TextSpace(max_prompt_bytes)
        self._words = EnvWords(self.task, env.action_space, space, **words)
        self._reader = self._words.reader
        self.action_space = self._reader.action_space

    def _set_render_mode(self, render_mode: str | None) -> None:
        self._own_render_mode = render_mode
        modes = self.metadata.get("render_modes", [])
        if render_mode == "ansi" and "ansi" not in modes:
            self.metadata = {**self.metadata, "render_modes": [*modes, "ansi"]}

    @property
    def prompt(self) -> Prompt:
        """Return what the agent reads now.

        :raises gymnasium.error.ResetNeeded: before the first reset.
        """
        return self._reading.prompt

    @property
    def _reading(self) -> Reading:
        if self._now is None:
            raise gym.error.ResetNeeded("call env.reset() first: no episode has begun")
        return self._now

    @property
    def fixed_phrases(self) -> tuple[str, ...] | None:
        """Return the phrases that are legal in every state; ``None`` where they differ, or where there are none."""
        fixed = None if self._words.phrases is None else self._words.phrases.fixed
        return None if fixed is None else tuple(fixed)

    @property
    def maskable_phrases(self) -> tuple[str, ...] | None:
        """Return the phrases of which an action mask may leave out some; ``None`` where masks leave out none."""
        phrases = self._words.phrases
        return None if phrases is None or not phrases.heeds_masks or phrases.named is None else tuple(phrases.named)

    @property
    def cue(self) -> str:
        """Return what prompts end with if the model has no chat template."""
        return self._reader.cue

    @property
    def render_mode(self) -> str | None:  # type: ignore[override]
        """Return ``"ansi"`` if asked for, else the env's render mode."""
        return self._own_render_mode or self.env.render_mode

    def render(self) -> Any:
        """Render the prompt or the env.

        The render mode ``"ansi"`` means the prompt.

        :raises gymnasium.error.ResetNeeded: before the first reset, with ``"ansi"``.
        """
        return str(self.prompt) if self.render_mode == "ansi" else super().render()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start an episode with an empty history.

        :param seed: as in Gymnasium. It also seeds the random actions of ``on_parse_error="random"``, and which words
            are left out.
        :param options: as in Gymnasium.
        :return: uint8 row ``(max_prompt_bytes,)`` and ``info``.
        :raises TypeError: if the env returns something else than an observation and a dict.
        """
        observation, info = reset_env(self.env, seed, options)
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._now, self._action_masks = None, self._action_masks or find_masks(self.task, self.env)
        self._now = self._words.first(observation, masked(info, self._action_masks), self._change)
        return self._now.row, {**info, "prompt_truncated": self._words.composer.shortened}

    def step(
        self, action: int | np.integer | NDArray[Any] | str
    ) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Take an action.

        :param action: index of a legal phrase (int, NumPy integer, or 0-d array, as ``model.predict`` returns), or the
            phrase itself. With ``action_mode="generate"``: a row of token ids, or a text.
        :return: as in Gymnasium; the observation is a uint8 row ``(max_prompt_bytes,)``.
        :raises TypeError: if the action is none of these, or the env returns something else than Gymnasium asks for.
        :raises ValueError: if the action is not legal now; the message lists what is.
        """
        before = self._reading
        answer = self._reader.read(action, before.legal, self._random)
        # The env gets a copy: if it clips or scales its action in place, the phrase keeps its action.
        observation, reward, terminated, truncated, info = step_env(self.env, copy.deepcopy(answer.action))
        self._now = None  # after an error in reading, only a reset helps: the env has moved on
        # After the end, some envs cannot say what is legal.
        told = info if terminated or self._action_masks is None else masked(info, self._action_masks)
        self._now = self._words.after(before, answer, observation, told, terminated or truncated, self._change)
        info = {**info, "prompt_truncated": self._words.composer.shortened, **answer.info}
        if answer.parse_error and self.training:
            reward += answer.penalty
        return self._now.row, reward, terminated, truncated, info

    @property
    def _change(self) -> Change | None:
        """Return what is done to the words of an observation."""
        if not self.word_dropout or not self.training:
            return None
        return lambda text: leave_out_words(text, self.word_dropout, self._random)

    def read_answer(self, action: int | np.integer | NDArray[Any] | str) -> ReadAnswer:
        """Find what the env would be given for an action now.

        The env stays where it is. An action that would be drawn at random is the one that :meth:`step` would draw.

        Example:
            >>> env = TextObservationWrapper(gym.make("Blackjack-v1"), action_mode="generate")
            >>> observation, info = env.reset(seed=0)
            >>> env.read_answer("I stick.").action  # or the row that model.predict(observation) returns
            0

        :param action: as for :meth:`step`.
        :raises gymnasium.error.ResetNeeded: before the first reset.
        """
        return self._reader.read(action, self._reading.legal, copy.deepcopy(self._random))

    @property
    def legal_actions(self) -> dict[str, Any]:
        """Return the phrases that are legal now, if any, each with the env action that it stands for.

        :raises gymnasium.error.ResetNeeded: before the first reset.
        """
        return copy.deepcopy(dict(self._reading.legal))

    def phrase_of(self, action: Any) -> str | None:
        """Find the phrase to answer with for an action of the env itself.

        Use it where something plays that knows nothing of words, such as a script or a policy of numbers.

        :param action: an action of the env's own action space.
        :return: the first legal phrase that stands for it; ``None`` if none does.
        :raises gymnasium.error.ResetNeeded: before the first reset.
        :raises ValueError: if the task's ``extract_action`` does not read this phrase as that.
        """
        return self._reader.phrase_of(action, self._reading.legal)

    def encode(self, observation: Any, info: dict[str, Any] | None = None) -> NDArray[np.uint8]:
        """Make the row of any observation.

        Use it to ask a model what it would do there. The env stays where it is. The prompt repeats the history of the
        running episode.

        Example:
            >>> env = TextObservationWrapper(gym.make("Blackjack-v1"))
            >>> row = env.encode((20, 10, 0))  # action, _ = model.predict(row)

        :param observation: a value of the env's own observation space.
        :param info: the env's info, if the task's phrases depend on it, or has an ``action_mask``. Without a mask, all
            phrases are legal, because the env knows only what is legal where it stands. An env that has its masks in
            ``info`` alone is known to have some from its first reset on: before, a row without a mask names the phrases
            in the system prompt, and later behind the observation.
        :return: uint8 ``(max_prompt_bytes,)``.
        :raises ValueError: if no phrase is legal there.
        """
        return self._words.encode(observation, info or {}, () if self._now is None else self._now.history)

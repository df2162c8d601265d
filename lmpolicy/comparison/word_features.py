"""Give a network that reads no text what the text says."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from lmpolicy.comparison.word_encoder import WordEncoder
from lmpolicy.text.prompt import Prompt
from lmpolicy.text.spaces import TextSpace, decode_bytes, row_keys
from lmpolicy.training.copyable_wrapper import CopyableVecEnvWrapper

WORDS, NUMBERS = "words", "numbers"
"""Keys of an observation."""
PLAY = 2_048
"""Env steps of random play from which the words are learnt, unless told otherwise."""
MASKS = "action_masks"
"""Name of the method that ``MaskablePPO`` of sb3-contrib asks for."""


class WordFeatures(CopyableVecEnvWrapper):
    """Turn prompts into numbers for a classic policy, such as ``"MultiInputPolicy"``.

    This is the baseline to hold a language model against: a small network that is told what the language model is told.
    It works with any task. An observation is a dict of two rows: ``words`` holds ones and zeros, ``numbers`` the
    numbers of the text. Scale the numbers by running statistics, ``VecNormalize(env, norm_obs_keys=["numbers"])``.

    Example:
        >>> import lmpolicy
        >>> from stable_baselines3 import PPO
        >>> from stable_baselines3.common.vec_env import VecNormalize
        >>> words = lmpolicy.hyperparameters("CartPole-v1").make_env(seed=0)
        >>> env = lmpolicy.WordFeatures(words, play=256)
        >>> model = PPO("MultiInputPolicy", VecNormalize(env, norm_obs_keys=["numbers"]))
        >>> test = lmpolicy.WordFeatures(words, encoder=env.encoder)  # reads texts in the same way

    How a text is read:

    - Random play shows what all texts have in common. Between these common words lie slots, where texts differ. So
      "Pole leans left 1.7 degrees" has a slot with "left 1.7".
    - A slot has a column for each different content (up to 128, not of decimal fractions), for each pattern (the
      content with ``#`` in place of numbers, up to 64), and for each number of each pattern. So a number is multiplied
      by what stands around it: the network can give "left 1.7" and "right 1.7" different weights. Where a slot has two
      patterns with as many numbers, they share columns and have opposite signs: "left 1.7" is -1.7.
    - A slot with more patterns is free text, such as the list of what is in sight. It has columns for its most frequent
      words, pairs of neighbouring words and clauses, and for the numbers of its most frequent clauses.
    - Random play shows all that has a column of its own. What it has not shown goes to 64 columns that all unknown
      words share, by a hash. Nothing changes later, so a network never meets a column with a new meaning.
    - Past turns of a prompt have columns of their own, by their place.

    So nothing is lost that the text says. On CartPole this gives four signed numbers.

    Where other phrases are legal in each state, an action is one of the phrases that random play has shown, or the last
    action: any other phrase, drawn among those. ``env_method("action_masks")`` tells which are legal, as
    ``MaskablePPO`` of sb3-contrib needs it, and ``words`` tells it, too. Elsewhere, actions stay as they are.

    :param venv: envs in words, as :meth:`Hyperparameters.make_env` makes them; several
        :class:`~lmpolicy.TextObservationWrapper` in one VecEnv.
    :param encoder: how texts are read, ``encoder`` of other envs with the same words, e.g. those of the training.
        Default: learnt from random play in ``venv``.
    :param play: env steps of that random play, over all envs. Name them beside the env steps of training. They are in
        ``played``.
    :param seed: seed of random play, and of the draws among phrases without a name.
    :raises TypeError: if the envs are not in words, or do not choose among phrases.
    :raises ValueError: if ``play`` is no positive number.
    """

    def __init__(self, venv: VecEnv, encoder: WordEncoder | None = None, play: int = PLAY, seed: int = 0) -> None:
        if not isinstance(venv.observation_space, TextSpace) or not isinstance(venv.action_space, spaces.Discrete):
            raise TypeError(
                "WordFeatures takes envs in words that choose among phrases, several TextObservationWrapper in one "
                f"VecEnv, e.g. hyperparameters(id).make_env(); got observations {venv.observation_space} and actions "
                f"{venv.action_space}"
            )
        if isinstance(play, bool) or not isinstance(play, int) or play < 1:
            raise ValueError(f"play is a positive number of env steps, got {play!r}")
        self.played = 0
        """Env steps of random play that the encoder was made from; 0 where it was given."""
        self._random = np.random.default_rng(seed)
        if encoder is None:
            encoder = WordEncoder.learn(self._play(venv, play))
        self.encoder = encoder
        """How texts are read."""
        shape = {WORDS: (encoder.n_words, 0, 1), NUMBERS: (encoder.n_numbers, -np.inf, np.inf)}
        found: dict[str, spaces.Space[Any]] = {
            key: spaces.Box(low, high, (width,), np.float32) for key, (width, low, high) in shape.items() if width
        }
        actions = venv.action_space if encoder.phrases is None else spaces.Discrete(len(encoder.phrases) + 1)
        super().__init__(venv, spaces.Dict(found), actions)
        self._prompts: list[Prompt] = []

    def _play(self, venv: VecEnv, steps: int) -> list[Prompt]:
        """Return the prompts of random play."""
        found = read_prompts(venv, venv.reset())
        current = found
        while self.played < steps:
            chosen = np.array([self._random.integers(len(prompt.actions)) for prompt in current])
            rows, _, _, infos = venv.step(chosen)
            assert isinstance(rows, np.ndarray)
            self.played += venv.num_envs
            current = read_prompts(venv, rows)
            last = [info["terminal_observation"] for info in infos if "terminal_observation" in info]
            found = found + current + read_prompts(venv, np.array(last) if last else rows[:0])
        return found

    def reset(self) -> dict[str, NDArray[np.float32]]:
        """Start an episode in each env."""
        self._prompts = read_prompts(self.venv, self.venv.reset())
        return self._features(self._prompts)

    def step_async(self, actions: NDArray[Any]) -> None:
        """Take an action in each env.

        :param actions: ``(n_envs,)``.
        :raises ValueError: if an action stands for a phrase that is not legal now.
        """
        if self.encoder.phrases is not None:
            actions = np.array([self._index(int(one), p) for one, p in zip(actions, self._prompts, strict=True)])
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Return what followed; the last observations of episodes in ``infos`` are turned into numbers as well."""
        rows, rewards, dones, infos = self.venv.step_wait()
        self._prompts = read_prompts(self.venv, rows)
        for info in infos:
            if "terminal_observation" in info:
                last = self._features(read_prompts(self.venv, info["terminal_observation"][None]))
                info["terminal_observation"] = {key: value[0] for key, value in last.items()}
        return self._features(self._prompts), rewards, dones, infos

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of each env; ``action_masks`` is answered here.

        :param method_name: name of the method.
        :param method_args: its arguments.
        :param indices: envs to call. Default: all.
        :param method_kwargs: its arguments by name.
        """
        if method_name == MASKS and self.encoder.phrases is not None:
            return [self.encoder.legal(self._prompts[k]) for k in self._get_indices(indices)]
        return self.venv.env_method(method_name, *method_args, indices=indices, **method_kwargs)

    def has_attr(self, attr_name: str) -> bool:
        """Check whether each env has an attribute.

        :param attr_name: name of the attribute.
        """
        return (attr_name == MASKS and self.encoder.phrases is not None) or self.venv.has_attr(attr_name)

    def _features(self, prompts: list[Prompt]) -> dict[str, NDArray[np.float32]]:
        words, numbers = zip(*map(self.encoder.encode, prompts), strict=True)
        rows = {WORDS: np.stack(words), NUMBERS: np.stack(numbers)}
        assert isinstance(self.observation_space, spaces.Dict)
        return {key: rows[key] for key in self.observation_space.spaces}

    def _index(self, action: int, prompt: Prompt) -> int:
        """Return which of the legal phrases an action stands for."""
        phrases = self.encoder.phrases
        assert phrases is not None
        if action == len(phrases):
            known = set(phrases)
            others = [k for k, phrase in enumerate(prompt.actions) if phrase not in known]
            if others:
                return int(self._random.choice(others))
        elif phrases[action] in prompt.actions:
            return prompt.actions.index(phrases[action])
        name = phrases[action] if action < len(phrases) else "any other phrase"
        raise ValueError(
            f"{name!r} is not legal now, but {', '.join(prompt.actions)}: learn with MaskablePPO of sb3-contrib, and "
            'pass action_masks=np.stack(env.env_method("action_masks")) to model.predict'
        )


def read_prompts(venv: VecEnv, rows: Any) -> list[Prompt]:
    """Read the prompts of rows.

    :param venv: envs in words.
    :param rows: ``uint8 (B, max_bytes)``.
    """
    assert isinstance(venv.observation_space, TextSpace)
    return [Prompt.from_json(decode_bytes(key)) for key in row_keys(rows)]

"""Turn demonstrations into rows for a policy."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from lmpolicy.lm.queries import TooLongError
from lmpolicy.lm.text_actor import TextActor
from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.text.prompt import CUE, cue_after
from lmpolicy.text.spaces import utf8
from lmpolicy.training.imitation.cloning import Rows
from lmpolicy.training.imitation.demonstration import LONG_ANSWER, LONG_PROMPT, Demonstration, EnvWords, SkippableError
from lmpolicy.training.imitation.demonstration_files import counted_reasons
from lmpolicy.training.imitation.demonstrations import Demonstrations
from lmpolicy.training.multi_env import PerEnvRewardNormalization
from lmpolicy.training.reward_scale import begin_scaling, return_divisors, scaling_of, shaping_of

log = logging.getLogger(__name__)

REMEDY = "pass too_long='count' to leave such turns out"


def prepare(
    model: OnPolicyAlgorithm,
    demonstrations: Demonstrations,
    validation: float,
    gamma: float | None,
    unknown: str,
    too_long: str,
    seed: int,
) -> tuple[Rows, Rows, Mapping[str, int]]:
    """Turn demonstrations into rows to learn, and rows to hold out.

    :param model: learner with an env.
    :param demonstrations: turns.
    :param validation: share of the episodes that is held out; 0: none.
    :param gamma: discount of rewards. ``None``: no returns are given; neither are any where the learner's envs change
        their rewards in training, because the returns of the demonstrations are without that.
    :param unknown: as for :func:`encode`.
    :param too_long: as for :func:`encode`.
    :param seed: seed of the choice of episodes.
    :return: rows to learn, rows to hold out, and how many turns were left out, by reason.
    :raises ValueError: if there is nothing to learn, or a turn does not fit.
    """
    policy, venv = model.policy, model.get_env()
    assert isinstance(policy, LMActorCriticPolicy)
    assert venv is not None
    if validation and len(demonstrations.episodes) < 2:
        raise ValueError("one episode cannot be divided: pass validation=0 to learn all of it, or give more episodes")
    if gamma is not None and (shaping := shaping_of(venv)):
        log.warning("the critic learns nothing from the demonstrations, because %s changes the rewards", shaping)
        gamma = None
    words = EnvWords.of(venv)
    places = range(len(demonstrations))
    returns = [None for _ in places] if gamma is None else demonstrations.returns(gamma)
    rows, numbers, skipped = encode(policy, words, demonstrations, returns, unknown, too_long)
    held = set(demonstrations.held_out(validation, seed)) if validation else set()
    second = np.array([number in held for number in numbers], dtype=bool)
    parts = [rows.take(np.flatnonzero(chosen)) for chosen in (~second, second)]
    if not len(parts[0]) or (validation and not len(parts[1])):
        raise ValueError(
            f"no turn is left to {'hold out' if len(parts[0]) else 'learn'} of {len(demonstrations)}; left out were "
            f"{dict(skipped) or 'none'}"
        )
    if len(policy.optimizer.param_groups) == 1 and np.isnan(parts[0].returns).all():
        raise ValueError(
            "there is nothing to learn: the language model is frozen (lora='frozen'), and the critic has no returns. "
            "Give the demonstrations rewards or returns, or train an adapter"
        )
    divisor = _divisor(venv, demonstrations, rows.returns)
    first, last = (Rows(one.keys, one.actions, one.weights, one.returns / divisor) for one in parts)
    return first, last, skipped


def _divisor(venv: VecEnv, demonstrations: Demonstrations, returns: NDArray[np.float32]) -> np.float32:
    """Return the number by which the critic's returns are divided, as the rewards of the learner's envs are."""
    known = returns[~np.isnan(returns)]
    if not len(known):
        return np.float32(1)
    if isinstance(scaling_of(venv), PerEnvRewardNormalization):
        raise ValueError(
            "the rewards are scaled env by env, and demonstrations do not say from which env they are, so that their "
            "returns cannot be scaled: pass critic=False"
        )
    begin_scaling(venv, demonstrations.rewards(), known)
    return np.float32(return_divisors(venv)[0])


def encode(
    policy: LMActorCriticPolicy,
    words: EnvWords,
    demonstrations: Demonstrations,
    returns: Sequence[float | None],
    unknown: str = "refuse",
    too_long: str = "refuse",
) -> tuple[Rows, list[int], Mapping[str, int]]:
    """Turn demonstrations into rows for a policy.

    :param policy: policy that is to learn them.
    :param words: env of its learner.
    :param demonstrations: turns; N of them.
    :param returns: return from each turn on, scaled as the critic learns it; N of them.
    :param unknown: ``"refuse"`` or ``"count"``: what to do about a turn whose action is no legal phrase.
    :param too_long: the same about prompts and answers that are too long for the env or for the model.
    :return: rows, their places in the demonstrations, and how many turns were left out, by reason.
    :raises ValueError: if a turn does not fit; the message names its number from 1.
    """
    counted = counted_reasons(unknown, too_long)
    keys, actions, weights, kept, places, skipped = [], [], [], [], [], Counter[str]()
    for place, (turn, return_) in enumerate(zip(demonstrations, returns, strict=True)):
        try:
            fitting = words.fit(turn)
            key = utf8(fitting.prompt.to_json())
            action = action_of(policy, fitting, key)
        except SkippableError as error:
            if error.reason not in counted:
                raise ValueError(f"turn {place + 1} of the demonstrations: {error}") from error
            skipped[error.reason] += 1
            continue
        except ValueError as error:
            raise ValueError(f"turn {place + 1} of the demonstrations: {error}") from error
        places.append(place)
        keys.append(key)
        actions.append(action)
        weights.append(turn.weight)
        kept.append(np.nan if return_ is None else return_)
    numbers = np.array([weights, kept], dtype=np.float32).reshape(2, -1)
    rows = Rows(keys, np.array(actions, dtype=np.int64), numbers[0], numbers[1])
    return rows, places, skipped


def action_of(policy: LMActorCriticPolicy, turn: Demonstration, key: bytes) -> int | np.ndarray:
    """Return the action of a turn: the index of its phrase, or its answer as a row of token ids.

    :param policy: policy that is to learn it.
    :param turn: turn that fits the env.
    :param key: key of its prompt.
    :raises SkippableError: if prompt or answer is too long for the model.
    """
    try:
        policy.actor.queries.prompts([key])
    except TooLongError as error:
        raise SkippableError(LONG_PROMPT, f"{error}; or {REMEDY}") from error
    if isinstance(policy.actor, TextActor):
        return answer_row(policy.actor, turn)
    assert turn.action is not None
    return turn.prompt.actions.index(turn.action)


def answer_row(actor: TextActor, turn: Demonstration) -> np.ndarray:
    """Return an answer as the actor would write it, with what ends it.

    :param actor: actor that is to write it.
    :param turn: turn that fits the env.
    :return: int64 row of the action space.
    :raises SkippableError: if the answer has too many tokens.
    :raises ValueError: if the actor would have ended the answer sooner.
    """
    renderer, space = actor.scorer.backbone.renderer, actor.space
    ends, stops = actor.queries.ends, [stop for stop in actor.stop if stop != CUE]
    phrase = turn.action if space.n_phrases else None
    text = _words_of(turn) if phrase is None else _thought(turn.answer or "", phrase)
    if stops and not renderer.has_template:
        text = text.rstrip().removesuffix(stops[0]) + stops[0]
    elif phrase is not None:
        text += cue_after(text)
    ids = list(renderer.action_ids(text))
    if phrase is None and not (stops and not renderer.has_template) and ends:
        eos = actor.scorer.backbone.tokenizer.eos_token_id
        ids.append(eos if eos in ends else ends[0])
    if len(ids) > space.max_new_tokens:
        raise SkippableError(
            LONG_ANSWER,
            f"the answer {text[:60]!r} has {len(ids)} tokens, but max_new_tokens of the wrapper is "
            f"{space.max_new_tokens}: make it larger, or {REMEDY}",
        )
    sooner = next((length for length in range(1, len(ids)) if actor.ends_answer(ids[:length])), None)
    if sooner is not None:
        raise ValueError(
            f"the policy would end the answer {text[:60]!r} after {sooner} of {len(ids)} tokens, at a text of `stop`: "
            "take the text out of the answer, or pass another stop in policy_kwargs"
        )
    return space.row(ids, None if phrase is None else turn.prompt.actions.index(phrase))


def _words_of(turn: Demonstration) -> str:
    """Return the text of an answer; of a turn that has none, what the prompt asks for."""
    if turn.answer is not None:
        return turn.answer
    asked = turn.prompt.messages[0][0] == "system" and CUE in turn.prompt.messages[0][1]
    return f"{CUE} {turn.action}" if asked else str(turn.action)


def _thought(answer: str, phrase: str) -> str:
    """Return what was written before a phrase was chosen, from an answer that may end with the phrase."""
    if answer.strip() == phrase:
        return ""
    head = answer.rstrip().removesuffix(phrase).rstrip()
    return head.removesuffix(CUE).rstrip() if head.endswith(CUE) else answer.rstrip()

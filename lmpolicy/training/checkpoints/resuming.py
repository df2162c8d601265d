"""Go on with a training from the newest checkpoint of its run."""

from __future__ import annotations

import importlib
import json
import logging
from pathlib import Path
from typing import Any

import torch as th
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.vec_env import VecEnv

from lmpolicy.files import numbered
from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.training.checkpoints.callback_state import load_callback_states
from lmpolicy.training.checkpoints.checkpoints import ENVS, MODEL, SCALING, STATE, claim, newest_checkpoint
from lmpolicy.training.checkpoints.env_state import NotCopyableError, restore_envs, restore_scaling
from lmpolicy.training.checkpoints.random_state import set_env_random_state, set_random_state

log = logging.getLogger(__name__)


def resume(
    folder: str | Path, env: GymEnv, callback: Any = None, device: th.device | str = "auto"
) -> OnPolicyAlgorithm:
    """Load the newest checkpoint of a run, as :class:`~lmpolicy.Checkpoints` writes them.

    The training then goes on as if it had not been interrupted: with the same numbers, bit for bit, if the state of
    the envs could be copied, or all episodes began at the checkpoint. Otherwise new episodes begin, and the log says
    so. With adapters in the last layers alone, what is remembered of the others is computed again, which may round
    otherwise.

    Example:
        >>> callbacks = [*settings.callbacks(), lmpolicy.Checkpoints("runs/cartpole/1")]  # doctest: +SKIP
        >>> model = lmpolicy.resume("runs/cartpole/1", settings.make_env(seed=0), callbacks)  # doctest: +SKIP
        >>> left = 20_000 - model.num_timesteps  # doctest: +SKIP
        >>> model.learn(left, callbacks, reset_num_timesteps=False)  # doctest: +SKIP

    This function unpickles files of the checkpoint, which can run any code: resume only runs of your own. To use a
    model of somebody else, load its ``model.zip`` alone.

    :param folder: folder of the run.
    :param env: envs that were made as those of the run were. Pass no others, because the state of the old ones is put
        into them.
    :param callback: the callbacks that ``learn`` is given next, made as those of the run were. What they counted is put
        into them.
    :param device: device of the model, as in SB3.
    :return: learner of the class that the run had. Call ``learn`` next, because other calls use random numbers.
    :raises FileNotFoundError: if the folder has no checkpoint; the message names folders that have.
    :raises RuntimeError: if another program trains in the folder.
    :raises ValueError: if the envs are wrapped or counted in another way than those of the run, or a file of the
        checkpoint is damaged. Make them as the run did, or delete that checkpoint to go on from the one before.
    """
    place = newest_checkpoint(Path(folder))
    if place is None:
        raise FileNotFoundError(_nothing_in(Path(folder)))
    claim(Path(folder)).release()  # callbacks cut files of the run, which nobody else may write to
    state = _read_state(place / STATE)
    learner: OnPolicyAlgorithm = _class(state["learner"]).load(place / MODEL, env=env, device=device, force_reset=False)
    venv = learner.get_env()
    assert venv is not None
    try:
        restore_scaling(venv, (place / SCALING).read_bytes())
    except NotCopyableError as error:
        raise ValueError(f"make the envs as the run in {folder} did: {error}") from None
    problem = _continue_episodes(venv, place, state["envs"])
    if problem:
        _begin_episodes(learner, venv, state, problem)
    missing = load_callback_states(callback, state["callbacks"])
    if missing:
        log.warning("resume() was given no callback for the state of %s: it is lost", ", ".join(missing))
    policy = learner.policy
    assert isinstance(policy, LMActorCriticPolicy)
    if policy.guard is not None and state["guard"] is not None:
        policy.guard.load_state_dict(state["guard"])
    set_random_state(state["random"])
    log.info("Resumed %s after %d of %d env steps.", place, learner.num_timesteps, state["total_timesteps"])
    return learner


def _read_state(file: Path) -> dict[str, Any]:
    """Read what a checkpoint says about its training."""
    try:
        state: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:  # of text or JSON
        raise ValueError(f"{file} cannot be read: {error}") from error
    return state


def _continue_episodes(venv: VecEnv, place: Path, said: str) -> str:
    """Put the state of the envs back; return why that is not possible, or an empty text."""
    if not (place / ENVS).exists():
        return said
    try:
        restore_envs(venv, (place / ENVS).read_bytes())
    except NotCopyableError as error:
        return str(error)
    return ""


def _begin_episodes(learner: OnPolicyAlgorithm, venv: VecEnv, state: dict[str, Any], problem: str) -> None:
    """Begin the episodes that began at the checkpoint, or else new ones in place of those that were running."""
    if state["num_timesteps"] == 0:
        learner.set_env(venv, force_reset=True)  # with the seeds that SB3 gave when it loaded the model
        return
    if state["env_seed"] is not None:
        venv.seed(state["env_seed"])
        learner._last_obs = venv.reset()  # type: ignore[assignment]
        return
    log.warning("New episodes begin in all envs, because the old ones cannot be continued: %s", problem)
    venv.unwrapped.reset()  # uses up those seeds: new episodes are not the first ones of the training again
    set_env_random_state(venv, state["env_random"])
    learner.set_env(venv, force_reset=True)


def _class(name: str) -> Any:
    """Return a class by its module and name."""
    module, _, cls = name.rpartition(".")
    return getattr(importlib.import_module(module), cls)


def _nothing_in(folder: Path) -> str:
    """Say that a folder has no checkpoint, and which folder has one."""
    runs = [str(run) for run in numbered(folder).values() if newest_checkpoint(run) is not None]
    if runs:
        return f"{folder} is no run; these in it can be resumed: {', '.join(runs)}"
    return f"{folder} has no checkpoint; they are written by learn(..., callback=lmpolicy.Checkpoints(folder))"

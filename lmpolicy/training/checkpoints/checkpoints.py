"""Keep checkpoints in the folder of a run: all that training changes, written whole."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from lmpolicy.files import draft_beside, numbered, remove_drafts, sync_folder, whole_file
from lmpolicy.lm.optimizer_steps import end_update
from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.training.callbacks import learner_of, policy_of
from lmpolicy.training.checkpoints.callback_state import callback_states
from lmpolicy.training.checkpoints.env_state import NotCopyableError, copy_envs, copy_scaling
from lmpolicy.training.checkpoints.random_state import env_random_state, random_state
from lmpolicy.training.checkpoints.saving import save

log = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
"""Name of the folder of checkpoints, in the folder of a run."""
MODEL, STATE, SCALING, ENVS = "model.zip", "training.json", "scaling.pickle", "envs.pickle"
"""Files of a checkpoint: the learner; what is counted, as JSON; state of reward scaling; state of the envs, if it can
be copied."""
LOCK, PATIENCE = ".lock", 3.0
"""File that a training holds in the folder of its checkpoints; seconds that another waits, for one that just ends."""


class Checkpoints(BaseCallback):
    """Keep what is needed to resume a training, in the folder of its run.

    A checkpoint holds the learner with its optimizer and schedules, what callbacks and guard rails count, reward
    scaling, random generators, and the state of the envs where it can be copied. It is taken between the update of a
    rollout and the next rollout. The folder of a checkpoint appears when all of it is on the disk, so a killed program
    leaves a complete one. :func:`lmpolicy.resume` goes on from the newest.

    Where the state of the envs cannot be copied, but all episodes begin at a checkpoint, this callback resets the envs
    with a seed, and the checkpoint holds the seed.

    Callbacks of your own are part of a checkpoint if they have the methods ``state_dict`` and ``load_state_dict``, see
    :class:`lmpolicy.training.checkpoints.callback_state.HasState`.

    Example:
        >>> run = lmpolicy.new_run("runs/cartpole")  # doctest: +SKIP
        >>> model.learn(20_000, callback=[*settings.callbacks(), lmpolicy.Checkpoints(run)])  # doctest: +SKIP

    :param folder: folder of the run, as :func:`lmpolicy.new_run` makes it. Its files are for this run alone.
    :param every: number of rollouts from one checkpoint to the next. By default 1, because a checkpoint of an adapter
        takes a small part of the time of a rollout and its update.
    :param keep: number of complete checkpoints that are kept.
    :raises ValueError: if ``every`` or ``keep`` is not a positive integer; and when training starts, if the folder has
        checkpoints of a training that is further on than the learner. Resume it, or make a new folder.
    :raises RuntimeError: when training starts, if another program trains in the folder: both would be spoilt.
    """

    def __init__(self, folder: str | Path, every: int = 1, keep: int = 2) -> None:
        super().__init__()
        for name, value in (("every", every), ("keep", keep)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a positive number, got {value!r}")
        self.folder, self.every, self.keep = Path(folder), every, keep
        self._rollouts = 0
        self._owns = False
        self._warned = False
        self._is_updated = False
        self._lock: FileLock | None = None

    def _on_training_start(self) -> None:
        policy_of(self)
        place = self.folder / CHECKPOINTS
        place.mkdir(parents=True, exist_ok=True)
        self._lock = claim(self.folder)
        newest = newest_checkpoint(self.folder)
        if newest is not None and not self._owns:
            steps = json.loads((newest / STATE).read_text(encoding="utf-8"))["num_timesteps"]
            if steps > self.model.num_timesteps:
                self._lock.release(force=True)
                raise ValueError(
                    f"{self.folder} has checkpoints of a run that is {steps} env steps on. Go on with "
                    f"lmpolicy.resume({str(self.folder)!r}, env=env), or begin in a new folder, lmpolicy.new_run(...)"
                )
        self._owns = True
        remove_drafts(place, older_than=0)
        self._rollouts = 0

    def _on_rollout_start(self) -> None:
        if self._rollouts % self.every == 0:
            self._write()
        self._rollouts += 1
        self._is_updated = False

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self._is_updated = True  # when this object is called next

    def _on_training_end(self) -> None:
        if self._is_updated:  # a rollout that a callback ended is not learnt from, and its last step is not noted
            self._write()
        if self._lock is not None:
            self._lock.release(force=True)

    def _write(self) -> None:
        place = self.folder / CHECKPOINTS
        kept = numbered(place)
        number = max(kept, default=0) + 1
        policy = policy_of(self)
        end_update(policy)
        problem = write_checkpoint(place / str(number), learner_of(self), self.locals.get("callback"))
        if problem and not self._warned:
            log.warning("Checkpoints lack the state of the envs: %s. A resumed run begins new episodes.", problem)
            self._warned = True
        policy.actor.forget()  # a resumed run remembers nothing, and what is remembered may round otherwise
        if policy.reference is not None:
            policy.reference.forget()
        for old in [path for key, path in kept.items() if key <= number - self.keep]:
            unwanted = draft_beside(old)
            os.replace(old, unwanted)
            shutil.rmtree(unwanted)


def claim(folder: Path) -> FileLock:
    """Take the lock of a run that has a folder of checkpoints. The system gives it back when the program ends.

    A training that Ctrl-C ended does not give it back, so this program may always take it again.

    :param folder: folder of the run.
    :raises RuntimeError: if another program has it.
    """
    path = (folder / CHECKPOINTS).resolve() / LOCK
    lock = FileLock(path, is_singleton=True, thread_local=False)
    try:
        lock.acquire(timeout=0 if lock.is_locked else PATIENCE)
    except Timeout:
        raise RuntimeError(
            f"another program trains in {folder} now. Wait for it or end it, or train in a folder of your "
            f"own, lmpolicy.new_run(...). If there is none, delete {path}"
        ) from None
    return lock


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the folder of the newest complete checkpoint of a run.

    :param folder: folder of the run.
    :return: ``None`` if there is none.
    """
    found = numbered(folder / CHECKPOINTS)
    return found[max(found)] if found else None


def write_checkpoint(place: Path, learner: OnPolicyAlgorithm, callback: Any) -> str:
    """Write a checkpoint.

    :param place: folder that appears when all of it is written. Its parent exists, and it does not.
    :param learner: learner between an update and the next rollout.
    :param callback: the callbacks of the training.
    :return: why running episodes cannot be continued from it; empty if they can.
    """
    draft = draft_beside(place)
    draft.mkdir()
    try:
        problem = _fill(draft, learner, callback)
        os.rename(draft, place)
    except BaseException:  # e.g. a full disk
        shutil.rmtree(draft, ignore_errors=True)
        raise
    sync_folder(place.parent)
    return problem


def _fill(draft: Path, learner: OnPolicyAlgorithm, callback: Any) -> str:
    """Write the files of a checkpoint; return why running episodes cannot be continued from it, or an empty text."""
    venv, policy = learner.get_env(), learner.policy
    assert venv is not None
    assert isinstance(policy, LMActorCriticPolicy)
    problem, seed = "", None
    try:
        _write_bytes(draft / ENVS, copy_envs(venv))
    except NotCopyableError as error:
        problem, seed = str(error), _begin_with_seed(learner, venv)
    _write_bytes(draft / SCALING, copy_scaling(venv))
    save(learner, draft / MODEL)
    state = {
        "learner": f"{type(learner).__module__}.{type(learner).__qualname__}",
        "num_timesteps": learner.num_timesteps,
        "total_timesteps": learner._total_timesteps,
        "envs": problem or "copied",
        "env_seed": seed,
        "env_random": env_random_state(venv),
        "callbacks": callback_states(callback),
        "guard": None if policy.guard is None else policy.guard.state_dict(),
        "random": random_state(),
    }
    _write_bytes(draft / STATE, json.dumps(state, default=_plain).encode())
    return problem if seed is None and learner.num_timesteps else ""


def _begin_with_seed(learner: OnPolicyAlgorithm, venv: VecEnv) -> int | None:
    """Let episodes that begin at a checkpoint begin with a seed, from which they can be begun again.

    :return: seed of the first env; ``None`` if an episode is running, or if the training has not begun.
    """
    starts = learner._last_episode_starts
    if learner.num_timesteps == 0 or starts is None or not np.all(starts):
        return None
    numbers = np.random.SeedSequence([learner.seed or 0, learner.num_timesteps]).generate_state(1)
    seed = int(numbers[0]) % 2**30
    venv.seed(seed)
    learner._last_obs = venv.reset()  # type: ignore[assignment]
    return seed


def _write_bytes(path: Path, content: bytes) -> None:
    with whole_file(path) as file:
        file.write(content)


def _plain(value: Any) -> Any:
    """Return a number or an array of NumPy as JSON has them."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"the state of a callback holds {value!r}; state_dict() returns numbers, texts, lists and dicts")

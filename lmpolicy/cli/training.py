"""Train a run from its settings, from the beginning or from its newest checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger, TensorBoardOutputFormat
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from lmpolicy.cli.choosing import Given, check_demonstrations
from lmpolicy.cli.progress import PendingNumbers, ProgressFile, TrainingBar, mean_return
from lmpolicy.cli.run_settings import FILE, RunSettings
from lmpolicy.cli.runs import Run, instead_of
from lmpolicy.cli.told import busy_remark, in_words, messages
from lmpolicy.cli.values import check_setting
from lmpolicy.lm.guard import NonFiniteError
from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.text.spaces import TokenSpace
from lmpolicy.training.callbacks import CoefficientSchedule
from lmpolicy.training.checkpoints.checkpoints import MODEL, Checkpoints, newest_checkpoint
from lmpolicy.training.checkpoints.resuming import resume
from lmpolicy.training.checkpoints.saving import new_run, save
from lmpolicy.training.imitation.demonstrations import Demonstrations
from lmpolicy.training.imitation.warm_start import warm_start
from lmpolicy.training.watching.watching import WatchLearning

WATCHED = 20
"""About how many times a training records an episode and asks the same prompts."""
FEW_TURNS = 100
"""Number of demonstrated turns below which a held-out tenth would say nothing."""
FROM_FEW = {"validation": 0.0, "epochs": 20, "batch_size": 8, "ent_coef": 0.5}
"""Arguments of a warm start from few turns, from which a policy would be too sure of all that they do not show."""
TYPED = {
    "pass unknown='count' to leave such turns out": "delete the line",
    "pass too_long='count' to leave such turns out": "delete the line",
    "make the wrapper with max_prompt_bytes=": "--set max_prompt_bytes=",
}
"""What one types, by what messages about demonstrations say of Python arguments."""
RATE = 5e-4
"""Learning rate of a warm start: there is nothing to forget yet."""


@dataclass(frozen=True)
class Trained:
    """Hold what a training came to."""

    folder: Path
    """Folder of the run."""
    env_steps: int
    """Env steps that were learnt from."""
    mean_return: float | None
    """Mean return of the last episodes of the training; None if no episode ended."""
    seconds: float
    """Duration of this part of the training."""
    interrupted: bool
    """Whether Ctrl-C ended it."""

    @property
    def facts(self) -> dict[str, Any]:
        """Return all of it for a script."""
        return {
            "run": str(self.folder),
            "env_steps": self.env_steps,
            "mean_return": self.mean_return,
            "seconds": round(self.seconds, 1),
            "interrupted": self.interrupted,
            "model": str(self.folder / MODEL),
        }

    def __str__(self) -> str:
        mean = "no episode has ended" if self.mean_return is None else f"mean return {self.mean_return:.2f} at the end"
        run = self.folder
        lines = [f"{self.env_steps:,} env steps, {in_words(self.seconds)}, {mean}", f"model      {run / MODEL}"]
        if self.interrupted:
            lines += [f"go on      lmpolicy train --resume {run}"]
        lines += [f"evaluate   lmpolicy evaluate {run}", f"look at it lmpolicy report {run}"]
        if self.mean_return is None:
            lines.append(
                "Where episodes never end, neither does evaluate: give the env a time limit, for instance with "
                "--env-arg max_episode_steps=1000"
            )
        return "\n".join(lines)


def start(settings: RunSettings, output: Path | None, tensorboard: bool) -> Trained:
    """Train from the beginning, in a new folder.

    :param settings: settings of the run.
    :param output: folder of numbered runs. Default: ``runs``, and in it the name of the env.
    :param tensorboard: whether to write files for TensorBoard, too.
    """
    model = _make(settings, settings.make_env())
    played = _demonstrations(settings)
    run = Run(new_run(output or Path("runs") / settings.env_id.rpartition(":")[2].replace("/", "-")), settings)
    settings.write(run.folder)
    try:
        return _learn(run, model, _callbacks(run), tensorboard, played)
    except Exception:
        if [one.name for one in run.folder.iterdir()] == [FILE]:  # nothing has begun that could go on
            (run.folder / FILE).unlink()
            run.folder.rmdir()
        raise


def settings_of(folder: Path, given: Given) -> RunSettings:
    """Return the settings with which a run goes on.

    :param folder: folder of the run.
    :param given: what was typed besides.
    :raises ValueError: if the run is complete, or something that was typed would change it; the message says what to
        do.
    """
    given.refuse_for_resume()
    run = Run.open(folder)
    settings = run.settings
    if given.steps is not None:
        further = check_setting("total_timesteps", "int", given.steps, "--steps")
        settings = settings.with_values({"total_timesteps": further}, "--steps")
    settings = settings.computing(given.device, given.threads)
    settings.check(None if given.device is not None else folder / FILE)
    done = run.env_steps
    if done is None:
        check_demonstrations(settings, str(folder / FILE), "change the name in the settings")
    elif done >= settings.steps:
        raise ValueError(
            f"{folder} is complete, with {done:,} env steps: lmpolicy train --resume {folder} --steps {2 * done} goes "
            f"further, lmpolicy evaluate {folder} says how good it is"
        )
    return settings


def go_on(folder: Path, settings: RunSettings, tensorboard: bool) -> Trained:
    """Go on with a run from its newest checkpoint; from the beginning, if it was stopped before the first.

    :param folder: folder of the run.
    :param settings: settings of :func:`settings_of`.
    :param tensorboard: whether to write files for TensorBoard, too.
    """
    run, played = Run(folder, settings), None
    env, callbacks = settings.make_env(), _callbacks(run)
    newest = newest_checkpoint(folder)
    if newest is None:
        model: OnPolicyAlgorithm = _make(settings, env)
        played = _demonstrations(settings)
    else:
        try:
            model = resume(folder, env, callbacks, settings.device)
        except ValueError as error:  # the envs are made as before, so a file is damaged
            raise ValueError(f"{error}. {instead_of(newest / MODEL)}") from error
    settings.write(folder)
    return _learn(run, model, callbacks, tensorboard, played)


def _make(settings: RunSettings, env: VecEnv) -> PPO:
    """Make the learner."""
    model = PPO(LMActorCriticPolicy, env, device=settings.device, seed=settings.seed, **settings.ppo)
    _ = model.policy.backbone  # a policy whose adapter is not there waits for a checkpoint, and says so now
    return model


def _callbacks(run: Run) -> list[BaseCallback]:
    """Make the callbacks, equal ones for each part of a training."""
    settings = run.settings.hyperparameters
    rollouts = run.settings.steps // (settings.n_envs * settings.n_steps)
    return [
        *settings.callbacks(),
        PendingNumbers(),
        WatchLearning(every=max(1, rollouts // WATCHED), folder=run.folder),
        Checkpoints(run.folder),
    ]


def _demonstrations(settings: RunSettings) -> Demonstrations | None:
    """Read what a warm start learns from."""
    if settings.demonstrations is None:
        return None
    with _typed():
        played = Demonstrations.from_jsonl(settings.demonstrations, settings.make_one())
    if not len(played):
        raise ValueError(
            f"{settings.demonstrations} holds no turns: lmpolicy play {settings.env_id} --output FILE writes some"
        )
    return played


@contextmanager
def _typed() -> Iterator[None]:
    """Put what one types in place of Python arguments, in messages about demonstrations."""
    try:
        yield
    except ValueError as error:
        message = str(error)
        for argument, typed in TYPED.items():
            message = message.replace(argument, typed)
        raise ValueError(message) from error


def cloning_arguments(played: Demonstrations, model: OnPolicyAlgorithm) -> dict[str, Any]:
    """Return arguments of a warm start that suit the number of turns.

    :param played: what it learns from.
    :param model: learner. One that writes gets no entropy bonus, which would be one for any token.
    """
    if len(played) >= FEW_TURNS and len(played.episodes) > 1:
        return {}
    writes = isinstance(model.action_space, TokenSpace)
    return {name: value for name, value in FROM_FEW.items() if name != "ent_coef" or not writes}


def _told_of_cloning(numbers: Mapping[str, float]) -> str:
    """Say how well a policy does what it was shown.

    :param numbers: those of the epoch that was kept. Where answers are written, they have no accuracy.
    """
    if "accuracy" in numbers:
        return f"Its most likely phrase is the one that was played in {numbers['accuracy']:.0%} of turns."
    if "validation_loss" in numbers:
        return f"Its loss on the held-out answers is {numbers['validation_loss']:.3g}."
    return f"Its loss on the answers that were played is {numbers['loss']:.3g}."


def _learn(
    run: Run,
    model: OnPolicyAlgorithm,
    callbacks: list[BaseCallback],
    tensorboard: bool,
    played: Demonstrations | None,
) -> Trained:
    """Train to the end, or until Ctrl-C, and save the model."""
    console, folder, total, threads = messages(), run.folder, run.settings.steps, run.settings.use_threads()
    formats = [TensorBoardOutputFormat(str(folder))] if tensorboard else []
    model.set_logger(Logger(str(folder), [ProgressFile(folder, model.num_timesteps), *formats]))
    if played is not None:
        console.print(f"Learning from {played!r}")
        with _typed():
            found = warm_start(
                model, played, learning_rate=RATE, seed=run.settings.seed, **cloning_arguments(played, model)
            )
        console.print(_told_of_cloning(found.best))
    left = total - model.num_timesteps
    asked = run.settings.hyperparameters.total_timesteps
    rounded = "" if asked == total else f" ({asked:,} in whole rollouts of {run.settings.rollout:,})"
    console.print(
        f"Training on {run.settings.env_id} for {left:,} env steps{rounded} on {model.device}. In {folder}: "
        "settings.yaml, checkpoints, progress.csv, episodes.jsonl. Ctrl-C stops early and keeps what was learnt."
    )
    if model.device.type == "cpu" and (remark := busy_remark(threads)):
        console.print(remark)
    begun = time.perf_counter()
    try:
        interrupted = _interrupted(model, left, TrainingBar(console, total), callbacks)
    except NonFiniteError as error:
        raise NonFiniteError(
            f"{error}. On the command line, lmpolicy train --settings {folder / FILE} --set NAME=VALUE begins anew "
            "with another setting"
        ) from error
    seconds = time.perf_counter() - begun
    save(model, folder / MODEL)
    return Trained(folder, model.num_timesteps, mean_return(model.ep_info_buffer or ()), seconds, interrupted)


def _interrupted(model: OnPolicyAlgorithm, steps: int, bar: TrainingBar, callbacks: Sequence[BaseCallback]) -> bool:
    """Train to the end, or until Ctrl-C; return whether it was that."""
    try:
        model.learn(steps, callback=[bar, *callbacks], reset_num_timesteps=False)
    except KeyboardInterrupt:
        return True
    finally:
        bar.close()
        for callback in callbacks:
            if isinstance(callback, CoefficientSchedule):
                callback.put_back()  # into what is saved belongs the learner's own, not that of half an update
    return False

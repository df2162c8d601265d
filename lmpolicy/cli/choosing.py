"""Choose the settings of a run from what was typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from lmpolicy import models
from lmpolicy.cli.run_settings import RunSettings
from lmpolicy.cli.values import check_setting, read_pairs
from lmpolicy.training.settings.env_lookup import arguments_of
from lmpolicy.training.settings.task_lookup import near

BUNDLED = "bundled"


@dataclass(frozen=True)
class Given:
    """Hold what was typed for a training; ``None`` or empty where nothing was."""

    env: str | None = None
    model: str | None = None
    task: str | None = None
    seed: int | None = None
    steps: int | None = None
    n_envs: int | None = None
    generate: int | None = None
    env_args: Sequence[str] = ()
    changes: Sequence[str] = ()
    adapter: str | None = None
    demonstrations: Path | None = None
    settings: Path | None = None
    device: str | None = None
    threads: int | None = None
    output: Path | None = None

    def starting_from(
        self,
        adapter: str | None,
        demonstrations: Path | None,
        settings: Path | None,
        device: str | None,
        threads: int | None,
        output: Path | None,
    ) -> Given:
        """Add what a training starts from, and where it goes.

        :param adapter: folder or hub id of a LoRA adapter.
        :param demonstrations: file of turns.
        :param settings: file of settings.
        :param device: device of the model.
        :param threads: CPU threads.
        :param output: folder of numbered runs.
        """
        start = replace(self, adapter=adapter, demonstrations=demonstrations, settings=settings)
        return replace(start, device=device, threads=threads, output=output)

    def refuse_for_resume(self) -> None:
        """Refuse what would change a run that goes on.

        :raises ValueError: if there is any; the message says how to train with it.
        """
        for one in fields(self):
            if one.name not in ("steps", "device", "threads") and getattr(self, one.name) not in (None, (), []):
                option = {"env": "ENV", "env_args": "--env-arg", "changes": "--set"}.get(
                    one.name, f"--{one.name.replace('_', '-')}"
                )
                raise ValueError(
                    f"{option} does not go with --resume, which goes on with the settings of its run; only --steps, "
                    "--device and --threads may change. To begin anew, leave --resume out; --settings "
                    "RUN/settings.yaml repeats a run"
                )


def choose(given: Given) -> RunSettings:
    """Return the settings of a run.

    First come the named settings of the env, or those of a file. A model, free text and demonstrations bring what suits
    them, at the size of rollout that was typed. What was typed by name comes last.

    :param given: what was typed.
    :raises ValueError: if it does not fit; the message says what to type.
    """
    chosen = _begin(given)
    if given.model is not None:
        model = find_model(given.model)
        if model is not None or chosen.hyperparameters.model is not None:
            chosen = replace(chosen, hyperparameters=chosen.hyperparameters.for_model(model))
    if given.generate is not None:
        if given.generate < 1:
            raise ValueError(f"--generate takes the longest answer in tokens, 1 or more; got {given.generate}")
        chosen = chosen.for_free_text(given.generate)
    typed: dict[str, object] = {}
    for option, name, value in (("--steps", "total_timesteps", given.steps), ("--n-envs", "n_envs", given.n_envs)):
        if value is not None:
            typed[name] = check_setting(name, "int", value, option)
    typed |= read_pairs(given.changes, "--set")
    if given.demonstrations is not None:
        # The warm-up of the critic is a number of rollouts, which depends on their size.
        sizes = {name: value for name, value in typed.items() if name in ("n_envs", "n_steps")}
        chosen = _after_demonstrations(chosen.changed(sizes), given.demonstrations)
    chosen = chosen.changed(typed)
    if given.adapter is not None:
        chosen = replace(chosen, policy={**chosen.policy, "adapter": given.adapter})
    if given.seed is not None:
        chosen = replace(chosen, seed=check_setting("seed", "int", given.seed, "--seed"))
    chosen = chosen.computing(given.device, given.threads)
    chosen.check(None if given.device is not None else given.settings)
    check_demonstrations(chosen, str(given.settings), "name another one by --demonstrations FILE")
    return chosen


def _after_demonstrations(chosen: RunSettings, file: Path) -> RunSettings:
    """Return settings for a policy that learns from demonstrations first."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}: lmpolicy play {chosen.env_id} --output FILE writes one")
    hyperparameters = chosen.hyperparameters
    if chosen.demonstrations is None:  # settings of a file that names some are for a warm start already
        hyperparameters = hyperparameters.after_warm_start()
    return replace(chosen, hyperparameters=hyperparameters, demonstrations=str(file))


def check_demonstrations(settings: RunSettings, source: str, remedy: str) -> None:
    """Refuse settings whose demonstrations are not there.

    :param settings: settings of a run.
    :param source: file that the settings are from.
    :param remedy: how to name another file.
    :raises FileNotFoundError: if the file is not there; the message says what to do.
    """
    file = settings.demonstrations
    if file is not None and not Path(file).is_file():
        here = "" if Path(file).is_absolute() else f" in {Path.cwd()}"
        raise FileNotFoundError(
            f"{source} names the demonstrations {file}, but there is no such file{here}. "
            f"Begin lmpolicy in the folder that the name counts from, or {remedy}"
        )


def _begin(given: Given) -> RunSettings:
    """Return the settings of a file, or the named settings of the env."""
    if given.settings is None:
        if given.env is None:
            raise ValueError(
                "name an env, as in lmpolicy train CartPole-v1; or --settings FILE to repeat a run, or --resume RUN"
            )
        return named(given.env, given.task, given.env_args)
    found = RunSettings.read(given.settings)
    if given.env not in (None, found.env_id):
        raise ValueError(f"{given.settings} is for {found.env_id}, not for {given.env}: leave ENV out, or --settings")
    if given.task is not None or given.env_args:
        raise ValueError(f"--task and --env-arg do not go with --settings: change them in {given.settings}")
    return found


def named(env_id: str, task: str | None, env_args: Sequence[str] = ()) -> RunSettings:
    """Return the named settings of an env, with the env made once, so that a mistake is told now.

    :param env_id: Gymnasium id.
    :param task: name of a task.
    :param env_args: arguments of the env as they were typed.
    :raises ValueError: if the env does not take an argument; the message names the nearest.
    """
    arguments = read_pairs(env_args, "--env-arg")
    found = RunSettings.of(env_id, task, arguments)
    _check_arguments(env_id, arguments)
    return found


def _check_arguments(env_id: str, arguments: dict[str, object]) -> None:
    """Refuse arguments that an env does not take."""
    known = arguments_of(env_id)
    for name in arguments:
        if known is not None and name not in known:
            raise ValueError(f"{env_id} takes no argument {name!r}{near(name, sorted(known))}")


def find_model(name: str) -> str | None:
    """Return the name of a language model that is there; ``None`` for the bundled one, as where no model is named.

    :param name: what was typed; ``bundled`` is the bundled LM.
    :raises OSError: if there is none; the message says how to get it, or which one is meant.
    """
    short = {one.name.rpartition("/")[2]: one.name for one in models.named_models()}
    if models.find(short.get(name, name)) is models.find(None):
        return None
    try:
        models.resolve(name)
    except OSError as error:
        hint = near(name, short)
        if not hint.endswith("?") or isinstance(error, models.ModelError):
            raise
        raise OSError(f"there is no model {name!r}{hint} lmpolicy models lists those with names. {error}") from None
    return name

"""Choose the settings of a run from what was typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from lmpolicy import models
from lmpolicy.cli.run_settings import RunSettings
from lmpolicy.cli.values import check_setting, read_pairs
from lmpolicy.training.settings.env_lookup import arguments_of
from lmpolicy.training.settings.script_options import check_device
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

    def starting_from(
        self,
        adapter: str | None,
        demonstrations: Path | None,
        settings: Path | None,
        device: str | None,
        threads: int | None,
    ) -> Given:
        """Add what a training starts from.

        :param adapter: folder or hub id of a LoRA adapter.
        :param demonstrations: file of turns.
        :param settings: file of settings.
        :param device: device of the model.
        :param threads: CPU threads.
        """
        return replace(
            self, adapter=adapter, demonstrations=demonstrations, settings=settings, device=device, threads=threads
        )

    def refuse_for_resume(self) -> None:
        """Refuse what would change a run that goes on.

        :raises ValueError: if there is any; the message says how to train with it.
        """
        for one in fields(self):
            if one.name not in ("steps", "device", "threads") and getattr(self, one.name):
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

    First come the named settings of the env, or those of a file. A model, demonstrations and free text bring what suits
    them. What was typed by name comes last.

    :param given: what was typed.
    :raises ValueError: if it does not fit; the message says what to type.
    """
    check_device(given.device or "auto")
    chosen = _begin(given)
    hyperparameters = chosen.hyperparameters
    if given.model is not None:
        hyperparameters = hyperparameters.for_model(find_model(given.model))
    if given.demonstrations is not None:
        if not given.demonstrations.is_file():
            raise FileNotFoundError(
                f"there is no file {given.demonstrations}: lmpolicy play {chosen.env_id} --output FILE writes one"
            )
        hyperparameters = hyperparameters.after_warm_start()
        chosen = replace(chosen, demonstrations=str(given.demonstrations))
    chosen = replace(chosen, hyperparameters=hyperparameters)
    if given.generate is not None:
        if given.generate < 1:
            raise ValueError(f"--generate takes the longest answer in tokens, 1 or more; got {given.generate}")
        chosen = chosen.for_free_text(given.generate)
    typed = {}
    for option, name, value in (("--steps", "total_timesteps", given.steps), ("--n-envs", "n_envs", given.n_envs)):
        if value is not None:
            typed[name] = check_setting(name, "int", value, option)
    chosen = chosen.changed({**typed, **read_pairs(given.changes, "--set")})
    if given.adapter is not None:
        chosen = replace(chosen, policy={**chosen.policy, "adapter": given.adapter})
    if given.seed is not None:
        chosen = replace(chosen, seed=check_setting("seed", "int", given.seed, "--seed"))
    return chosen.computing(given.device, given.threads)


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


def find_model(name: str) -> str:
    """Return the name of a language model that is there.

    :param name: what was typed; ``bundled`` is the bundled LM.
    :raises OSError: if there is none; the message says how to get it, or which one is meant.
    """
    short = {one.name.rpartition("/")[2]: one.name for one in models.named_models()}
    if name == BUNDLED:
        return short[name]
    try:
        models.resolve(name)
    except OSError as error:
        hint = near(name, short)
        if not hint.endswith("?") or isinstance(error, models.ModelError):
            raise
        raise OSError(f"there is no model {name!r}{hint} lmpolicy models lists those with names. {error}") from None
    return name

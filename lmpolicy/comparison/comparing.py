"""Compare a language model with classic learners on any env, with one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym

from lmpolicy.comparison.arguments import (
    check_experiment,
    check_measuring,
    check_processes,
    check_seeds,
    find_settings,
    name_of,
    with_threshold,
)
from lmpolicy.comparison.cells import Cell, Row
from lmpolicy.comparison.classic_settings import ClassicSettings
from lmpolicy.comparison.experiment import Experiment
from lmpolicy.comparison.methods import EnvFacts, Method, choose_methods, known_methods
from lmpolicy.comparison.preparing import learner_class
from lmpolicy.comparison.result import Comparison, report, require_packages
from lmpolicy.comparison.running import CellError, run_here, run_in_processes
from lmpolicy.comparison.storage import (
    MODELS,
    UNFINISHED,
    add_cell,
    cells_to_run,
    make_folder,
    read_runs,
    remove_trainings,
)
from lmpolicy.text.task import TextTask
from lmpolicy.training.settings.hyperparameters import Hyperparameters

Progress = Callable[[str, int, int], None]
"""Takes the last complete cell in words, how many are complete, and how many there are."""
REPORTED = range(100, 108)
"""Seeds that are reported. Settings are tuned with others, 0 to 4, so that nothing is chosen by seeds that count."""


def compare(
    env: str | Callable[..., gym.Env] | Hyperparameters,
    task: TextTask | type[TextTask] | None = None,
    *,
    seeds: Iterable[int] = REPORTED,
    methods: Iterable[str] | None = None,
    steps: int | None = None,
    folder: str | Path = "comparison",
    processes: int | None = None,
    checkpoints: bool = False,
    keep_models: bool = False,
    threshold: float | None = None,
    every: int | None = None,
    episodes: int = 100,
    success: bool = False,
    classic: ClassicSettings | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    evaluation_kwargs: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **measuring: Any,
) -> Comparison:
    """Train and evaluate several methods on an env, and write tables and curves into a folder.

    A cell is a method with a seed. A cell that is complete is never run again: the same call goes on where it was
    interrupted, and a call with more seeds or methods adds what is missing. Ctrl-C, or the end of the program, loses
    only the cells that are under way.

    Example:
        >>> import lmpolicy
        >>> found = lmpolicy.compare("CartPole-v1", folder="cartpole", processes=8)  # doctest: +SKIP
        >>> print(found)  # doctest: +SKIP

    The methods are evaluated at the same env steps, from the same seeds, with the most likely and with sampled actions.
    The folder holds ``runs.csv``, ``summary.csv``, ``table.md``, ``curves.png`` and ``settings.json``.

    ==================== ===============================================================================================
    method               what it is
    ==================== ===============================================================================================
    ``lm``               PPO with the language model, LoRA and value head, by the settings of the env
    ``lm-no-help``       the same without shaped rewards, where the settings have them
    ``lm-random``        the same with random weights in place of pretrained ones; LoRA and value head are trained
    ``lm-frozen``        the language model as it is. With a frozen adapter, only the value head would be trained, which
                         has no say in what is done; so nothing is trained, and it is evaluated once
    ``classic-raw``      PPO with a small network on the env's own observations
    ``classic-words``    PPO with the same network on what the words say, see :class:`WordFeatures`
    ``...+help``         a classic method with what the settings of the language model know about the env: shaped
                         rewards, legal actions (by ``MaskablePPO`` of sb3-contrib, where they differ from state to
                         state), scaled rewards, discount, entropy bonus, and a learning rate that falls by the same
                         factor
    ``...+zoo-budget``   a classic method for as many env steps as RL Baselines3 Zoo published its settings for
    ``random``           random play among the legal actions
    ==================== ===============================================================================================

    Classic methods have the published settings of RL Baselines3 Zoo where it has the env, and general ones elsewhere.

    :param env: Gymnasium id, or a callable that makes the env; or settings of the language model, whose ``env_id``,
        ``task`` and ``total_timesteps`` say the rest. In several processes, a callable must be importable.
    :param task: words of the env. Default: the bundled task, or generic words.
    :param seeds: seeds of the trainings. Default: 100 to 107. Tune with other seeds.
    :param methods: names of methods. Default: ``lm``, ``classic-raw`` and ``classic-words``, each classic one also with
        help, and ``random``; without those that do not suit the env.
    :param steps: env steps of training. Default: those of the settings. They are rounded up to whole rollouts of the
        language model, and are the same for all methods; a classic one finishes its last rollout.
    :param folder: folder to write to, of this env with these arguments alone.
    :param processes: number of cells that run at a time, each in a process of its own. Default: the number of CPU
        cores. 1: in this process, for envs that cannot be made in another. A language model other than the bundled one
        computes with as many threads as PyTorch has for each of them; all else with one, which is enough.
    :param checkpoints: whether a cell of a language model keeps a checkpoint of each rollout, and goes on from the
        newest after an interruption, without repeating an evaluation. For cells that take hours; each rollout takes a
        little longer. Checkpoints of a cell are removed when it is complete. Classic cells begin anew.
    :param keep_models: whether what each cell has learnt is saved in the folder, in ``models/``, as
        :func:`~lmpolicy.save` does, with what its envs need. :meth:`Comparison.model` names the file, and
        :meth:`Comparison.model_env` makes the envs. Of cells that were complete before, and of random weights, nothing
        is saved. A cell that is run again without it loses what was saved before.
    :param threshold: mean return from which on the env counts as learnt. Default: ``reward_threshold`` of the env's
        registration. Without either, no threshold.
    :param every: env steps between two evaluations. Default: a tenth of the training.
    :param episodes: number of episodes of an evaluation.
    :param success: whether evaluations count how often an episode succeeds (``info["won"]`` or ``info["is_success"]``,
        else a reward at the end before time is up), in place of its rewards.
    :param classic: settings of the classic methods. Default: those of RL Baselines3 Zoo.
    :param env_kwargs: arguments of the env.
    :param evaluation_kwargs: arguments of the env that are others in evaluations, e.g. levels that are not trained on.
    :param progress: is told of each cell that is complete, before the first and after each: its method and seed, how
        many are complete, and how many there are.
    :param measuring: further fields of :class:`~lmpolicy.comparison.experiment.Experiment`, such as ``observe``,
        ``policy``, ``players``, ``play``, ``pretraining_steps`` or ``device``.
    :raises FileExistsError: if a file is in the place of the folder.
    :raises ValueError: for an unknown method (the message names the nearest), a method that does not suit the env, no
        seeds, a number out of range, an env that cannot be made in another process, or results in the folder that were
        made with other settings; the message says what to do.
    :raises ImportError: if scipy or matplotlib is missing, or sb3-contrib where it is needed.
    :raises lmpolicy.comparison.running.CellError: at the end, if cells failed.
    """
    require_packages()
    check_measuring(measuring)
    settings = find_settings(env, task, steps, env_kwargs or {})
    experiment = Experiment(
        settings=settings,
        every=every,
        episodes=episodes,
        threshold=threshold,
        success=success,
        classic=classic,
        evaluation_kwargs=evaluation_kwargs or {},
        **{"name": name_of(settings.env_id), **measuring},
    )
    return run_experiment(experiment, seeds, methods, folder, processes, progress, checkpoints, keep_models)


def run_experiment(
    experiment: Experiment,
    seeds: Iterable[int] = REPORTED,
    methods: Iterable[str] | None = None,
    folder: str | Path = "comparison",
    processes: int | None = None,
    progress: Progress | None = None,
    checkpoints: bool = False,
    keep_models: bool = False,
) -> Comparison:
    """Run what is missing of an experiment, and write tables and curves.

    :param experiment: what is compared.
    :param seeds: as for :func:`compare`, like all that follow.
    :param methods: as there.
    :param folder: as there.
    :param processes: as there.
    :param progress: as there.
    :param checkpoints: as there.
    :param keep_models: as there.
    """
    check_experiment(experiment)
    seeds, processes, target = check_seeds(seeds), check_processes(processes), Path(folder)
    experiment, facts = with_threshold(experiment), EnvFacts.of(experiment)
    names = choose_methods(methods, experiment, facts)
    unfinished, models = (target / UNFINISHED if checkpoints else None), (target / MODELS if keep_models else None)
    cells = [Cell(experiment, Method.of(name), seed, facts, unfinished, models) for seed in seeds for name in names]
    waiting = cells_to_run(cells, read_runs(target), target)
    learner_class(any(cell.method.is_masked(facts) for cell in waiting))  # fails before any work
    make_folder(target)
    remove_trainings((cell for cell in cells if cell not in waiting), target)  # a program may have been killed before
    left, known = {cell.key for cell in waiting}, list(known_methods(experiment))

    def told(what: str) -> None:
        if progress is not None:
            progress(what, len(cells) - len(left), len(cells))

    def done(cell: Cell, rows: list[Row]) -> None:
        add_cell(target, cell, rows, lambda name: known.index(name) if name in known else len(known))
        remove_trainings([cell], target)
        left.discard(cell.key)
        told(str(cell))

    told("trainings")
    try:
        if processes > 1 and waiting:
            run_in_processes(waiting, processes, done)
        else:
            run_here(waiting, done)
    except KeyboardInterrupt:
        complete = read_runs(target)
        kept = sum(cell.key in complete for cell in cells)
        print(f"{kept} of {len(cells)} cells are complete and kept in {target}; the same call goes on with the others")
        raise
    except CellError:
        if read_runs(target):
            report(experiment, target)
        raise
    return report(experiment, target)

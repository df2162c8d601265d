"""Let a policy learn from demonstrations before it learns by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.utils import configure_logger

from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.training.imitation.cloning import Rows, Snapshot, clone_epoch, judge, own_rate, rate_now
from lmpolicy.training.imitation.demonstrations import Demonstrations
from lmpolicy.training.imitation.encoding import prepare

SMALLEST_PROGRESS = 1e-3
"""Loss by which an epoch must be better to count for ``patience``. A policy that is sure of what it was shown becomes a
little surer in every epoch."""
Epoch = dict[str, float]
"""Numbers of one epoch by their names in the log, without ``warm_start/``."""


@dataclass(frozen=True)
class WarmStart:
    """Say how a warm start went.

    :func:`~lmpolicy.warm_start` returns it.
    """

    turns: int
    """Number of turns that were learnt."""
    held_out: int
    """Number of turns of the validation episodes."""
    skipped: Mapping[str, int]
    """How many turns were left out, by reason."""
    best_epoch: int
    """Epoch whose weights were kept; 0: those before the warm start. Without validation, the last one."""
    stopped_early: bool
    """Whether the validation loss had not improved for ``patience`` epochs."""
    epochs: tuple[Mapping[str, float], ...] = field(repr=False)
    """What was logged of each epoch, from epoch 0, which is before the first step. ``loss`` and ``value_loss`` are
    means over the turns that were learnt, ``validation_loss``, ``validation_value_loss``, ``entropy`` and ``accuracy``
    over those that were held out. Without validation, the last two are those of the turns that were learnt."""

    @property
    def best(self) -> Mapping[str, float]:
        """Return what was logged of the epoch whose weights were kept."""
        return self.epochs[self.best_epoch]


def warm_start(
    model: OnPolicyAlgorithm,
    demonstrations: Demonstrations,
    epochs: int = 50,
    *,
    batch_size: int = 32,
    validation: float = 0.1,
    patience: int | None = 5,
    learning_rate: float | None = None,
    ent_coef: float = 0.0,
    critic: bool = True,
    unknown: str = "refuse",
    too_long: str = "refuse",
    seed: int = 0,
    progress_bar: bool = False,
    verbose: int = 0,
) -> WarmStart:
    """Let the policy of a learner learn from demonstrations, which is behaviour cloning.

    The actor's loss is the mean of -weight · log π(action | prompt): of the phrase that was taken, or of the tokens of
    the answer. The critic learns the discounted returns, where they are known. Both go through ``evaluate_actions`` and
    the optimizer of the policy, so that guard rails, checkpoints and the optimizer's state are those of a training. The
    learner's schedules and counters stay as they are.

    A policy that is cloned from a few episodes becomes sure of what it has hardly seen: it then plays nothing else, and
    PPO cannot find out what is better. An entropy bonus, ``ent_coef``, keeps it open.

    Example:
        >>> played = lmpolicy.Demonstrations.from_player(env, expert, episodes=20)  # doctest: +SKIP
        >>> model = PPO(LMActorCriticPolicy, env)  # doctest: +SKIP
        >>> lmpolicy.warm_start(model, played)  # doctest: +SKIP
        >>> model.learn(20_000)  # doctest: +SKIP

    The logger of SB3 is given ``warm_start/loss``, ``value_loss``, ``validation_loss``, ``validation_value_loss``,
    ``entropy`` and ``accuracy`` after each epoch. Entropy is in nats; accuracy is the share of turns whose phrase is
    the most likely one.

    If the envs of the learner scale rewards, returns are scaled in the same way. A ``VecNormalize`` that has seen no
    reward begins with the statistics of the demonstrations. If they change rewards in another way, by
    :class:`~lmpolicy.training.shaping.PotentialShaping` or a ``gymnasium.RewardWrapper``, the critic learns nothing,
    because the returns of the demonstrations are without that.

    :param model: PPO or A2C with :class:`~lmpolicy.LMActorCriticPolicy`.
    :param demonstrations: what to learn.
    :param epochs: largest number of times to go over the demonstrations.
    :param batch_size: number of turns in a minibatch.
    :param validation: share of the episodes that is held out, to see when to stop. 0: none.
    :param patience: number of epochs after which the warm start ends if the validation loss has not become better by
        0.001. The weights of the best epoch are put back, with the state of the optimizer. ``None``: all epochs are
        run.
    :param learning_rate: learning rate of the warm start. Default: what the learner's schedule has now.
    :param ent_coef: weight of the policy's entropy, which is taken from the actor's loss. Of two phrases, the one that
        is shown comes to a probability of 0.90 with 0.5 and of 0.97 with 0.3; with 0, to 1.
    :param critic: whether the critic learns, too.
    :param unknown: about a turn whose action is no legal phrase. ``"refuse"``: an error. ``"count"``: it is left out.
    :param too_long: the same about prompts and answers that are too long for the env or for the model.
    :param seed: seed of the validation episodes and of the order of turns. The same seed gives the same weights.
    :param progress_bar: whether to show a progress bar; it needs the package tqdm.
    :param verbose: 1: a line is printed after each epoch.
    :return: how it went.
    :raises TypeError: if the model is not such a learner, or the demonstrations are of another class.
    :raises ValueError: if there is nothing to learn, a turn does not fit the env, or an argument is out of range; the
        message says what to do. Nothing has been changed then.
    """
    policy = _check(model, demonstrations)
    _check_numbers(epochs, batch_size, validation, patience, learning_rate, ent_coef)
    rate = rate_now(model) if learning_rate is None else float(learning_rate)
    if rate <= 0:
        raise ValueError(
            "the learner's schedule has come to a learning rate of 0, with which nothing is learnt: pass learning_rate"
        )
    gamma = model.gamma if critic else None
    rows, held_out, skipped = prepare(model, demonstrations, validation, gamma, unknown, too_long, seed)
    run = _Run(model, policy, rows, held_out, batch_size, ent_coef, np.random.default_rng(seed))
    with _logger(model) as logger, own_rate(policy, rate), _bar(epochs, progress_bar) as advance:

        def report(epoch: int, numbers: Epoch) -> None:
            for name, value in numbers.items():
                logger.record(f"warm_start/{name}", value)
            logger.dump(epoch)
            advance(epoch, numbers)
            if verbose:
                print(f"warm start, epoch {epoch}: " + ", ".join(f"{k} {v:.4g}" for k, v in numbers.items()))

        best, stopped = run.train(epochs, patience, report)
    if policy.guard is not None:
        policy.guard.forget_weights()  # a policy that was shown what to avoid is not warned of phrases that it avoids
    return WarmStart(len(rows), len(held_out), skipped, best, stopped, tuple(run.epochs))


class _Run:
    """Go over rows until a validation loss improves no more."""

    def __init__(
        self,
        model: OnPolicyAlgorithm,
        policy: LMActorCriticPolicy,
        rows: Rows,
        held_out: Rows,
        batch_size: int,
        ent_coef: float,
        random: np.random.Generator,
    ) -> None:
        self.model, self.policy, self.rows, self.held_out = model, policy, rows, held_out
        self.batch_size, self.ent_coef, self.random = batch_size, ent_coef, random
        self.epochs: list[Epoch] = []

    def train(self, epochs: int, patience: int | None, report: Callable[[int, Epoch], None]) -> tuple[int, bool]:
        """Train, and put the best weights back.

        :return: number of the best epoch, and whether the training ended before the last one.
        """
        self._note({}, report)
        if not len(self.held_out):
            for _ in range(epochs):
                self._learn(report)
            return epochs, False
        lowest = self._validation_loss()
        best, kept, progress, mark = 0, Snapshot(self.policy), 0, lowest
        for epoch in range(1, epochs + 1):
            self._learn(report)
            loss = self._validation_loss()
            if loss < lowest:
                best, lowest, kept = epoch, loss, Snapshot(self.policy)
            if loss < mark - SMALLEST_PROGRESS:
                progress, mark = epoch, loss
            elif patience is not None and epoch - progress >= patience:
                break
        if best < len(self.epochs) - 1:
            kept.restore(self.policy)
        return best, len(self.epochs) - 1 < epochs

    def _learn(self, report: Callable[[int, Epoch], None]) -> None:
        actor, critic = clone_epoch(self.model, self.rows, self.batch_size, self.random, self.ent_coef)
        self._note({"loss": actor} | ({} if critic is None else {"value_loss": critic}), report)

    def _note(self, learnt: Epoch, report: Callable[[int, Epoch], None]) -> None:
        """Judge the policy as it is now."""
        found = judge(self.policy, self.held_out if len(self.held_out) else self.rows, self.batch_size)
        numbers = {**learnt, "entropy": found.entropy}
        if len(self.held_out):
            numbers["validation_loss"] = found.actor
            if found.critic is not None:
                numbers["validation_value_loss"] = found.critic
        if found.accuracy is not None:
            numbers["accuracy"] = found.accuracy
        self.epochs.append(numbers)
        report(len(self.epochs) - 1, numbers)

    def _validation_loss(self) -> float:
        """Return the loss that decides: the actor's, or the critic's if only the critic learns."""
        name = "validation_loss" if self.policy.actor_learns else "validation_value_loss"
        return self.epochs[-1].get(name, math.inf)


def _check(model: Any, demonstrations: Any) -> LMActorCriticPolicy:
    """Refuse what is no learner with a language model, or nothing to learn; return the policy."""
    if not isinstance(model, OnPolicyAlgorithm):
        raise TypeError(
            f"warm_start takes the learner (PPO or A2C), whose optimizer, discount and logger it uses; got "
            f"{type(model).__name__}"
        )
    if not isinstance(model.policy, LMActorCriticPolicy):
        raise TypeError(f"warm_start is for LMActorCriticPolicy, got {type(model.policy).__name__}")
    if not isinstance(demonstrations, Demonstrations):
        raise TypeError(
            f"demonstrations must be lmpolicy.Demonstrations, got {type(demonstrations).__name__}: read a file with "
            "Demonstrations.from_jsonl(path, env)"
        )
    if model.get_env() is None:
        raise ValueError("the learner has no env, so that its prompts are not known: call model.set_env(env) first")
    if not len(demonstrations):
        raise ValueError(f"there is nothing to learn: {demonstrations!r}")
    return model.policy


def _check_numbers(
    epochs: Any, batch_size: Any, validation: Any, patience: Any, learning_rate: Any, ent_coef: Any
) -> None:
    for name, value in (("epochs", epochs), ("batch_size", batch_size), ("patience", patience)):
        if name == "patience" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a positive integer, got {value!r}")
    if isinstance(validation, bool) or not isinstance(validation, int | float) or not 0 <= validation < 1:
        raise ValueError(f"validation is the share of episodes that is held out, from 0 to below 1; got {validation!r}")
    if learning_rate is not None and not (isinstance(learning_rate, int | float) and 0 < learning_rate < math.inf):
        raise ValueError(f"learning_rate must be above 0, or None for the learner's own; got {learning_rate!r}")
    if isinstance(ent_coef, bool) or not isinstance(ent_coef, int | float) or not 0 <= ent_coef < math.inf:
        raise ValueError(f"ent_coef is the weight of the entropy, 0 or more; got {ent_coef!r}")


@contextmanager
def _logger(model: OnPolicyAlgorithm) -> Iterator[Logger]:
    """Return the logger of the learner; before its first training, one for the warm start alone."""
    if hasattr(model, "_logger"):
        yield model.logger
        return
    logger = configure_logger(model.verbose, model.tensorboard_log, "warm_start", reset_num_timesteps=True)
    try:
        yield logger
    finally:
        logger.close()


@contextmanager
def _bar(epochs: int, wanted: bool) -> Iterator[Callable[[int, Epoch], None]]:
    """Show a progress bar; the function that is returned moves it."""
    if not wanted:
        yield lambda epoch, numbers: None
        return
    try:
        from tqdm import tqdm
    except ImportError as error:
        raise ImportError(f'{error}; a progress bar needs: pip install "lmpolicy[examples]"') from error
    with tqdm(total=epochs, desc="warm start", unit="epoch") as bar:

        def advance(epoch: int, numbers: Epoch) -> None:
            bar.set_postfix({name: f"{value:.3g}" for name, value in numbers.items()}, refresh=False)
            bar.update(epoch - bar.n)

        yield advance

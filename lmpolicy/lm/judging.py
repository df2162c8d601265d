"""Judge from rollouts and updates whether a policy still learns, and warn if it does not."""

from __future__ import annotations

import warnings
from typing import Any

import torch as th

from lmpolicy.lm.actor import Decision
from lmpolicy.lm.behaviour import Behaviour, BehaviourStream

MIN_DECISIONS = 256
"""Smallest number of decisions in a judgement. A2C's rollouts of 5 steps say nothing each by itself."""
IN_A_ROW = 3
"""Number of judgements in a row before a warning of a collapse, or of batches without differences."""
LOW_ENTROPY = 0.01
"""Entropy below which a policy counts as sure, as a share of log(number of legal phrases). For one of two phrases, that
is a probability of 99.93 %."""
SAME_ANSWER = 0.01
"""Mutual information below which a sure policy does the same whatever it reads, as the same share."""
HIGH_ENTROPY = 0.1
"""Entropy above which a policy counted as open at its beginning, as the same share."""
EARLY = 10
"""Number of judgements that are the beginning of training."""
LITTLE_INFORMATION = 1e-3
"""Mutual information below which a policy that is not sure ignores what it reads, as the same share."""
IGNORING_IN_A_ROW = 5
"""Number of judgements in a row before a warning of ignored input."""
NOTHING_IN = 2_048
"""Number of decisions without a difference before a warning. In a grid, chance may need a thousand to find a goal."""
CONSTANT = 1e-3
"""Spread of the gradients at the log-probabilities below which all advantages count as equal, relative to the largest.
"""

UNREACHABLE = 1e-4
"""Mean probability of a phrase below which it is hardly ever tried, so that nothing can be learnt about it."""
NAMED = 3
"""Number of phrases that a warning names."""


class GuardWarning(UserWarning):
    """Say that a guard rail was touched while training goes on.

    Each kind of warning is given once per policy.
    """


class LearningJudge:
    """Warn of four ways in which a policy does not learn.

    Each of the four warnings is given once.

    *Unreachable phrases*: A model may hold a legal phrase for so unlikely that it is never tried. The probabilities of
    the first rollout that the policy learns from show it. A policy whose weights were loaded is not judged, because it
    may have learnt what to avoid.

    *Entropy collapse*: The entropy alone cannot show a collapse, because the best policy of most envs is sure. A sure
    policy has collapsed if it does the same whatever it reads. It has also collapsed if it was open at first and became
    sure within the first ten judgements. PPO's clipping keeps every healthy run above 1 % of the largest entropy for
    that long, but too high a learning rate does not. The warning comes after three judgements in a row, each over at
    least 256 decisions.

    *Batches without differences*: In the first minibatch of an update, PPO's ratio is 1 and nothing is clipped. The
    gradient at the log-probabilities is therefore the advantage of each decision. If all are equal, there is nothing to
    learn. The warning comes after three updates in a row, of at least 2 048 decisions together: where rewards are rare,
    shorter spells without any are common at first.

    *Ignored input*: The mutual information of observation and action is near 0 in five judgements in a row, over
    decisions with the same legal phrases and more than one prompt. An untrained policy may well begin like this, so the
    first ten judgements do not count. A policy that is sure is left to the check for a collapse.
    """

    def __init__(self) -> None:
        self.warned: set[str] = set()
        self.judgements = 0
        self._stream = BehaviourStream()
        self._first_rollout = True
        self._began_open = False
        self._sure_early = self._sure_same = self._ignoring = 0
        self._equal: tuple[int, int] = (0, 0)  # updates in a row with equal advantages, and the decisions in them
        self._decisions = 0
        self._first_gradient: th.Tensor | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return what was counted over judgements and updates, as numbers and texts.

        Decisions since the last judgement are left out, so the next one comes up to 256 decisions later.
        """
        return {
            "warned": sorted(self.warned),
            "judgements": self.judgements,
            "began_open": self._began_open,
            "in_a_row": [self._sure_early, self._sure_same, self._ignoring],
            "equal": list(self._equal),
            "decisions": self._decisions,
            "first_gradient": None if self._first_gradient is None else self._first_gradient.tolist(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on counting from a state.

        :param state: what :meth:`state_dict` returned.
        """
        self.warned, self.judgements = set(state["warned"]), state["judgements"]
        self._began_open, self._decisions = state["began_open"], state["decisions"]
        self._sure_early, self._sure_same, self._ignoring = state["in_a_row"]
        updates, decisions = state["equal"]
        self._equal = updates, decisions
        gradient = state["first_gradient"]
        self._first_gradient = None if gradient is None else th.tensor(gradient)

    def acted(self, decision: Decision) -> None:
        """Note the decisions of one step of a rollout.

        :param decision: decisions of the policy.
        """
        self._decisions += len(decision.keys)
        if decision.probabilities is not None:
            self._stream.add(decision.keys, decision.probabilities.detach(), decision.entropy.detach())

    def first_gradient(self, gradient: th.Tensor) -> None:
        """Note the gradient at the log-probabilities.

        It is that of the first minibatch of an update. Its numbers are read later, because they are on the device.

        :param gradient: gradient, ``(B,)``.
        """
        if len(gradient) > 1:
            self._first_gradient = th.stack([gradient.max() - gradient.min(), gradient.abs().max()])

    def begin_update(self, actor_learns: bool, when: str) -> None:
        """Judge the last update and the rollout after it.

        :param actor_learns: whether training changes what the policy does. If not, the rollout is not judged.
        :param when: how far training has come, in words for the warnings.
        """
        self._judge_advantages(when)
        if not actor_learns:
            self._stream = BehaviourStream()
            return
        if self._first_rollout:
            self._first_rollout = False
            self._judge_reach(when)
        if self._stream.decisions >= MIN_DECISIONS:
            behaviour = self._stream.behaviour()
            self._stream = BehaviourStream()
            if behaviour is not None:
                self._judge_behaviour(behaviour, when)

    def weights_loaded(self) -> None:
        """Take the policy for one that has learnt."""
        self._first_rollout = False

    def _judge_reach(self, when: str) -> None:
        means = self._stream.mean_probabilities()
        rare = sorted((mean, decisions, phrase) for phrase, (mean, decisions) in means.items() if mean < UNREACHABLE)
        if not rare:
            return
        total = self._stream.decisions
        told = ", ".join(
            f"{phrase!r} ({mean:.1g}, legal in {n} of {total} decisions)" for mean, n, phrase in rare[:NAMED]
        )
        more = f" and {len(rare) - NAMED} more" if len(rare) > NAMED else ""
        self._warn(
            "unreachable",
            f"the model will hardly ever choose {told}{more}: in brackets, the mean probability in the first rollout. "
            "What is never tried cannot be learnt. Have in policy_kwargs score_normalization='token', the default, if "
            "long phrases are unlikely for being long; a model that has read about such an env; or a higher "
            "temperature. Harmless if these are never the best actions",
            when,
        )

    def _judge_advantages(self, when: str) -> None:
        if self._first_gradient is not None:
            spread, largest = self._first_gradient.tolist()
            updates, decisions = self._equal
            equal = spread <= CONSTANT * largest
            self._equal = (updates + 1, decisions + self._decisions) if equal else (0, 0)
            self._first_gradient = None
        self._decisions = 0
        updates, decisions = self._equal
        if updates >= IN_A_ROW and decisions >= NOTHING_IN:
            self._warn(
                "equal advantages",
                f"all advantages were equal in each of the last {updates} updates ({decisions} decisions): no action "
                "was better than another, so the policy learns nothing. Are all rewards equal, e.g. always 0? Then "
                "reward progress too, explore more (ent_coef, temperature) or make rollouts longer (n_steps, n_envs)",
                when,
            )

    def _judge_behaviour(self, now: Behaviour, when: str) -> None:
        self.judgements += 1
        if self.judgements == 1:
            self._began_open = now.entropy >= HIGH_ENTROPY
        sure, told = now.entropy < LOW_ENTROPY, now.information is not None
        early = sure and self._began_open and self.judgements <= EARLY + IN_A_ROW - 1
        same = now.information is not None and now.information < SAME_ANSWER
        ignores = (
            now.information is not None
            and now.information < LITTLE_INFORMATION
            and not sure
            and self.judgements > EARLY
        )
        self._sure_early = self._sure_early + 1 if early else 0
        self._sure_same = self._sure_same + 1 if sure and same else 0
        if told:
            self._ignoring = self._ignoring + 1 if ignores else 0
        if max(self._sure_early, self._sure_same) >= IN_A_ROW:
            how = "takes the same action whatever it reads" if same else "became sure at the beginning of training"
            self._warn(
                "collapse",
                f"the policy's entropy has collapsed: {100 * now.entropy:.2g} % of that of an even choice, and it "
                f"{how}. It explores no more and will hardly learn anything else. Raise ent_coef, lower learning_rate, "
                "or set target_kl (e.g. 0.02); if it was sure from the start, leave score_normalization at 'token' "
                "or raise temperature. Harmless if the return is already as high as it can be: then this is the best "
                "policy",
                when,
            )
        if self._ignoring >= IGNORING_IN_A_ROW:
            self._warn(
                "ignored input",
                f"the policy ignores what it reads: in {self._ignoring} rollouts in a row its probabilities were the "
                "same for different prompts (mutual information of observation and action below "
                f"{100 * LITTLE_INFORMATION:g} % of the largest possible). Is what matters in the prompt, and not cut "
                'off info["prompt_truncated"]? Else raise learning_rate or the rank of lora, or lower ent_coef. '
                "Harmless if the best action is the same everywhere",
                when,
            )

    def _warn(self, name: str, message: str, when: str) -> None:
        if name not in self.warned:
            self.warned.add(name)
            warnings.warn(f"{message} ({when}; not warned of again)", GuardWarning, stacklevel=2)

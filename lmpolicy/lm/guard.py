"""Guard rails: training that cannot go well any more stops, or warns, and says why."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch as th
from stable_baselines3.common.base_class import BaseAlgorithm
from torch.distributions import Categorical

from lmpolicy.lm.behaviour import Behaviour, BehaviourStream
from lmpolicy.text.spaces import row_bytes

if TYPE_CHECKING:
    from lmpolicy.policy import LMActorCriticPolicy

CHECKPOINT = "lmpolicy_last_good.zip"
MIN_DECISIONS = 256
"""A judgement is on at least so many decisions: A2C's rollouts of 5 steps say nothing each by itself."""
IN_A_ROW = 3
"""Judgements in a row before a warning of a collapse, or of a batch without differences."""
SURE = 0.01
"""Entropy below which a policy counts as sure, as a share of log(number of legal phrases): 99.93 % on one of two."""
SAME = 0.01
"""Mutual information, as the same share, below which a sure policy does the same whatever it reads."""
OPEN = 0.1
"""Entropy, as the same share, above which a policy was open at its beginning."""
EARLY = 10
"""Judgements that are the beginning of training."""
DEAF = 1e-3
"""Mutual information below which a policy that is not sure ignores what it reads."""
DEAF_IN_A_ROW = 5
CONSTANT = 1e-3
"""Spread of the gradients at the log-probabilities, relative to the largest, below which all advantages are equal."""


class NonFiniteError(FloatingPointError):
    """A number in training became NaN or infinite; raised before an optimizer step would write it into the weights."""


class GuardWarning(UserWarning):
    """Training goes on, but a guard rail of the policy was touched; each warns once per policy."""


class Guard:
    """Watches a policy from within: what it does in rollouts, and what reaches it in updates.

    *Non-finite numbers* stop the training before the step: SB3 clips by the joint norm, which spreads one NaN over all
    gradients, so the check is one norm per step, and where the first such number arose tells the cause. The weights go
    back to those of the last rollout, which acted on them, and are saved.

    *Entropy collapse* cannot be told by the entropy alone, since the best policy of most envs is sure. It is a collapse
    if the policy is sure and does the same whatever it reads, or if it was open at first and sure within the first
    ten judgements: PPO's clipping lets no healthy run get to 1 % of the entropy that fast, but too high a learning rate
    does. Three judgements in a row, each over at least 256 decisions.

    *Batches without differences*: in the first minibatch of an update the ratio is 1, hence nothing is clipped and the
    gradient at the log-probabilities is the advantage of each row. If all are equal, there is nothing to learn.

    *Ignored input*: mutual information of observation and action near 0 in five judgements in a row, over decisions
    with the same legal phrases and more than one prompt. An untrained policy may well begin so, hence not within the
    first ten. A policy that is sure is left to the check for a collapse.
    """

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.learner: BaseAlgorithm | None = None
        self.optimizer_steps = 0
        self.env_steps = 0
        self._warned: set[str] = set()
        self._stream = BehaviourStream()
        self._acted = False
        self._judged = 0
        self._began_open = False
        self._sure_early = self._sure_same = self._deaf = 0
        self._equal: tuple[int, int] = (0, 0)  # updates in a row whose advantages were equal, decisions in them
        self._decisions = 0
        self._first_gradient: th.Tensor | None = None
        self._outputs: tuple[th.Tensor, th.Tensor] | None = None
        self._incoming: dict[str, th.Tensor] = {}
        self._good: dict[str, th.Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "learner": None}  # a copied policy is no copy of its learner

    def acted(self, observations: th.Tensor, distribution: Categorical) -> None:
        """Note decisions of a rollout.

        :param observations: uint8 ``(B, max_bytes)``, on the CPU.
        :param distribution: over phrases, of B rows.
        """
        self.counted(len(observations))
        keys = [row_bytes(row) for row in observations.numpy()]
        self._stream.add(keys, distribution.probs.detach(), distribution.entropy().detach())

    def counted(self, decisions: int) -> None:
        """Note decisions of a rollout about which nothing else is known.

        :param decisions: how many.
        """
        self._acted = True
        self.env_steps += decisions
        self._decisions += decisions

    def evaluated(
        self, policy: LMActorCriticPolicy, outputs: th.Tensor, log_prob: th.Tensor, values: th.Tensor
    ) -> None:
        """Note a forward of an update, and follow the gradients that come back to it.

        :param policy: the policy.
        :param outputs: what the model computed, of any shape.
        :param log_prob: of the actions, ``(B,)``, as the learner gets it.
        :param values: ``(B, 1)``, as the learner gets them.
        """
        first, self._acted = self._acted, False
        if first:
            self._begin_update(policy)
        self._outputs = outputs.detach(), values.detach()
        self._incoming = {}
        for name, tensor in (("log_prob", log_prob), ("values", values)):
            if tensor.requires_grad:
                tensor.register_hook(lambda gradient, name=name: self._arrived(name, gradient, first))

    def _arrived(self, name: str, gradient: th.Tensor, first: bool) -> None:
        self._incoming[name] = gradient.detach()
        if first and name == "log_prob" and len(gradient) > 1:
            self._first_gradient = th.stack([gradient.max() - gradient.min(), gradient.abs().max()])

    def _begin_update(self, policy: LMActorCriticPolicy) -> None:
        self._judge_advantages()
        self._keep(policy)
        if policy.critic_only or len(policy.optimizer.param_groups) == 1:  # no actor learns: what it does, it must
            self._stream = BehaviourStream()
        elif self._stream.decisions >= MIN_DECISIONS:
            behaviour = self._stream.behaviour()
            self._stream = BehaviourStream()
            if behaviour is not None:
                self._judge_behaviour(behaviour)

    def _judge_advantages(self) -> None:
        """Judge the last update; only now, since its gradients were on the device until it was over."""
        if self._first_gradient is not None:
            spread, largest = self._first_gradient.tolist()
            updates, decisions = self._equal
            equal = spread <= CONSTANT * largest
            self._equal = (updates + 1, decisions + self._decisions) if equal else (0, 0)
            self._first_gradient = None
        self._decisions = 0
        updates, decisions = self._equal
        if updates >= IN_A_ROW and decisions >= MIN_DECISIONS:
            self._warn(
                "equal",
                f"all advantages were equal in each of the last {updates} updates ({decisions} decisions): no action "
                "was better than another, so the policy learns nothing. Are all rewards equal, e.g. always 0? Then "
                "reward progress too, explore more (ent_coef, temperature) or make rollouts longer (n_steps, n_envs)",
            )

    def _judge_behaviour(self, now: Behaviour) -> None:
        self._judged += 1
        if self._judged == 1:
            self._began_open = now.entropy >= OPEN
        sure, told = now.entropy < SURE, now.information is not None
        early = sure and self._began_open and self._judged <= EARLY + IN_A_ROW - 1
        same = now.information is not None and now.information < SAME
        deaf = now.information is not None and now.information < DEAF and not sure and self._judged > EARLY
        self._sure_early = self._sure_early + 1 if early else 0
        self._sure_same = self._sure_same + 1 if sure and same else 0
        if told:
            self._deaf = self._deaf + 1 if deaf else 0
        if max(self._sure_early, self._sure_same) >= IN_A_ROW:
            how = "takes the same action whatever it reads" if same else "became sure at the beginning of training"
            self._warn(
                "collapse",
                f"the policy's entropy has collapsed: {100 * now.entropy:.2g} % of that of an even choice, and it "
                f"{how}. It explores no more and will hardly learn anything else. Raise ent_coef, lower learning_rate, "
                "or set target_kl (e.g. 0.02); if it was sure from the start, set score_normalization='token' or raise "
                "temperature. Harmless if the return is already as high as it can be: then this is the best policy",
            )
        if self._deaf >= DEAF_IN_A_ROW:
            self._warn(
                "deaf",
                f"the policy ignores what it reads: in {self._deaf} rollouts in a row its probabilities were the same "
                "for different prompts (mutual information of observation and action below "
                f"{100 * DEAF:g} % of the largest possible). Is what matters in the prompt, and not cut off "
                'info["prompt_truncated"]? Else raise learning_rate or the rank of lora, or lower ent_coef. '
                "Harmless if the best action is the same everywhere",
            )

    def _warn(self, name: str, message: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            steps = f"after {self.optimizer_steps} optimizer steps and {self.env_steps} env steps"
            warnings.warn(f"{message} ({steps}; not warned of again)", GuardWarning, stacklevel=2)

    def check_gradients(self, policy: LMActorCriticPolicy) -> None:
        """Stop before a step that would write a number that is not finite.

        :param policy: the policy whose optimizer is about to step.
        :raises NonFiniteError: if a gradient is not finite; names the likely cause and the last good checkpoint.
        """
        gradients = [p.grad for group in policy.optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not gradients or bool(th.nn.utils.get_total_norm(gradients).isfinite()):
            return
        if all(_is_finite(gradient) for gradient in gradients):  # only their norm overflows, in half precision
            return
        raise self.stop(policy, self._cause(policy))

    def _cause(self, policy: LMActorCriticPolicy) -> str:
        """Where the first number arose that is not finite, and what usually does that."""
        if self._outputs is not None and not all(_is_finite(output) for output in self._outputs):
            return overflow(policy)
        returns, advantages = self._incoming.get("values"), self._incoming.get("log_prob")
        if returns is not None and not _is_finite(returns):
            bad = int((~returns.isfinite()).sum())
            return (
                f"{bad} of {len(returns)} returns in this minibatch are not finite, while the model's own numbers are: "
                "the env gave a reward that is NaN or infinite. Find the step with "
                "stable_baselines3.common.vec_env.VecCheckNan(env)"
            )
        if advantages is not None and not _is_finite(advantages):
            return (
                "the gradient at the log-probabilities is not finite, while returns and the model's numbers are: the "
                "policy has moved so far within one update that its ratio to the old one overflows. Lower "
                "learning_rate, or set target_kl (e.g. 0.02)"
            )
        half = " Pass dtype='bfloat16' or 'float32'." if _uses_float16(policy) else ""
        return f"the backward pass through the model overflowed.{half} Lower learning_rate"

    def stop(self, policy: LMActorCriticPolicy, cause: str) -> NonFiniteError:
        """Put the last good weights back and save them.

        :param policy: the policy.
        :param cause: what probably went wrong, and what helps.
        :return: what to raise.
        """
        steps = f"{self.optimizer_steps} optimizer steps and {self.env_steps} env steps"
        return NonFiniteError(
            f"training stopped after {steps} because a number is not finite (NaN or infinite). Likely cause: {cause}. "
            f"{self._save(policy)}"
        )

    def _keep(self, policy: LMActorCriticPolicy) -> None:
        """Copy the weights that the last rollout acted on: few, unless the base is trained, which is not copied."""
        if not policy.backbone.frozen:
            return
        now = _learnt(policy)
        if self._good.keys() != now.keys():
            self._good = {name: tensor.clone() for name, tensor in now.items()}
        else:
            for name, tensor in now.items():
                self._good[name].copy_(tensor)

    def forget_weights(self) -> None:
        """Other weights were loaded: what was kept belongs to another policy."""
        self._good = {}

    @th.no_grad()
    def _save(self, policy: LMActorCriticPolicy) -> str:
        """Restore and save the last good weights; tell where."""
        for name, tensor in _learnt(policy).items():
            if name in self._good:
                tensor.copy_(self._good[name])
        policy.engine.forget()
        if not all(_is_finite(parameter) for parameter in policy.parameters()):
            return "The weights in memory are not finite, so none were saved: go back to a checkpoint of your own"
        what = "those that the last rollout acted on" if self._good else "those before the step"
        path = (self.folder or Path()).resolve() / CHECKPOINT
        saver, name, more = policy.save, type(policy).__name__, ""
        if self.learner is not None:
            saver, name, more = self.learner.save, type(self.learner).__name__, ", env=env"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            saver(str(path))
        except Exception as error:  # whatever the disk says must not hide why training stopped
            return f"The weights in memory are good ({what}), but saving them to {path} failed: {error!r}"
        how = f"{name}.load({str(path)!r}{more})"
        return f"Last good checkpoint, weights as in memory ({what}): {path}; load it with {how}"


def overflow(policy: LMActorCriticPolicy) -> str:
    """Why scores or values of the model's forward are not finite, and what helps.

    :param policy: the policy.
    """
    if not all(_is_finite(parameter) for parameter in policy.parameters()):
        return (
            "a weight of the model itself is not finite, although every gradient was: it was loaded so, other code "
            "wrote it, or learning_rate is far too high"
        )
    if _uses_float16(policy):
        return "the model's activations overflow in float16. Pass dtype='bfloat16' or 'float32', or lower learning_rate"
    return "the model's activations overflow: earlier steps were too large. Lower learning_rate, or set target_kl"


def _learnt(policy: LMActorCriticPolicy) -> dict[str, th.Tensor]:
    """What training changes: trainable weights, and the statistics of the value head."""
    weights = {name: p.detach() for name, p in policy.named_parameters() if p.requires_grad}
    return {**weights, **{f"statistics.{name}": b for name, b in policy.backbone.value_head.named_buffers()}}


def _uses_float16(policy: LMActorCriticPolicy) -> bool:
    return any(parameter.dtype == th.float16 for parameter in policy.parameters())


def _is_finite(tensor: th.Tensor) -> bool:
    return bool(tensor.isfinite().all())

"""Make a language model the policy of a Stable-Baselines3 learner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import torch as th
from gymnasium import spaces
from stable_baselines3.common.distributions import Distribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule

from lmpolicy.learners import check_batch_size, check_learner
from lmpolicy.lm import checkpoints
from lmpolicy.lm.actor import Decision
from lmpolicy.lm.actors import make_actor
from lmpolicy.lm.adapters import MissingAdapterError
from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.exporting import export_adapter, export_model
from lmpolicy.lm.guard import Guard, overflow
from lmpolicy.lm.optimizer_steps import end_update, find_optimizer, watch_steps
from lmpolicy.lm.processes import n_processes
from lmpolicy.lm.reference import saved_reference
from lmpolicy.lm.reference_term import make_reference, take_reference
from lmpolicy.lm.settings import PolicySettings, check_spaces
from lmpolicy.lm.shared_policy import SharedPolicy

T = TypeVar("T")
log = logging.getLogger(__name__)


class LMActorCriticPolicy(SharedPolicy, ActorCriticPolicy):
    """Act with a language model, and estimate values from its hidden states.

    A value head estimates the values. The probability of an action is the softmax over the scores of the legal phrases.
    The policy works with the unmodified :class:`~stable_baselines3.PPO` and :class:`~stable_baselines3.A2C`. The
    entries of ``policy_kwargs`` are those of :class:`~lmpolicy.lm.settings.PolicySettings`.

    Copies (``copy.deepcopy``, ``pickle``, ``torch.save``) are whole and share nothing with the original. Several
    threads may ask one policy: they are answered one after the other. A ``copy.deepcopy`` waits for its turn, too; to
    pickle a policy that another thread uses, pickle a copy of it.

    Example:
        >>> from stable_baselines3 import PPO
        >>> import gymnasium as gym
        >>> from lmpolicy import LMActorCriticPolicy, TextObservationWrapper
        >>> env = TextObservationWrapper(gym.make("CartPole-v1"))
        >>> model = PPO(LMActorCriticPolicy, env, policy_kwargs=dict(lora=dict(r=8)))

    :param observation_space: the :class:`~lmpolicy.TextSpace` of a :class:`~lmpolicy.TextObservationWrapper`.
    :param action_space: ``Discrete(K)``, where index i is the i-th legal phrase of an observation. With a
        :class:`~lmpolicy.TokenSpace`, the model writes its answers, see ``action_mode`` of
        :class:`~lmpolicy.TextObservationWrapper`.
    :param lr_schedule: learning rate as a function of the remaining progress.
    :param use_sde: must be False. SB3 passes it, but it is for continuous actions.
    :param optimizer_class: class of the optimizer, as in SB3, or the name of one of ``torch.optim``.
    :param optimizer_kwargs: arguments of the optimizer, as in SB3.
    :param settings: entries of ``policy_kwargs``, see :class:`~lmpolicy.lm.settings.PolicySettings`.
    :raises TypeError: for a misspelt setting, an observation space that holds no text, or a learner that is not PPO or
        A2C; the message says what to do.
    :raises ValueError: for a value out of range; the message names the allowed values.
    """

    def __new__(cls, *_: Any, **__: Any) -> Any:
        """Refuse other learners here, because ARS passes too few arguments to get as far as ``__init__``."""
        check_learner()
        check_batch_size(n_processes())
        return super().__new__(cls)

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        lr_schedule: Schedule,
        use_sde: bool = False,
        *,
        optimizer_class: type[th.optim.Optimizer] | str = th.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.settings = PolicySettings.of(settings)
        check_spaces(observation_space, action_space)
        if use_sde:
            raise ValueError("use_sde=True is for continuous actions; a choice among phrases has none")
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            features_extractor_class=BaseFeaturesExtractor,  # there are none; SB3's default takes bytes for numbers
            features_extractor_kwargs={"features_dim": 1},
            optimizer_class=find_optimizer(optimizer_class),
            optimizer_kwargs=optimizer_kwargs,
        )

    def _build(self, lr_schedule: Schedule) -> None:
        """Build the model, the actor and the optimizer, without SB3's own layers.

        A checkpoint holds the settings of the adapter that its training started from, and its weights. So a policy
        whose adapter is missing waits for a checkpoint, and raises the error when it is used without one.
        """
        self._first_rate = lr_schedule(1)
        self.register_load_state_dict_post_hook(checkpoints.ignore_frozen_keys)
        try:
            self._build_on(Backbone(self.settings))
        except MissingAdapterError as error:
            self._missing = error
            log.warning("%s\nThe policy can be used once a checkpoint is loaded into it.", error)

    def _build_on(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self.actor = make_actor(self.backbone, self.action_space, self.settings)
        self.reference = make_reference(backbone, self.actor, self.settings)
        self.guard = Guard() if self.settings.guard_rails else None
        self.critic_only = False  # if True, optimizer steps do not change the LM, until the policy acts again
        groups, optimizer_class = backbone.parameter_groups(), self.optimizer_class
        self.optimizer = optimizer_class(groups, lr=self._first_rate, **self.optimizer_kwargs)  # type: ignore[call-arg]
        watch_steps(self)

    def __getattr__(self, name: str) -> Any:
        if name in ("backbone", "actor", "optimizer", "guard", "reference") and "_missing" in self.__dict__:
            raise self._missing
        return super().__getattr__(name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_missing" not in state:
            self.actor = make_actor(self.backbone, self.action_space, self.settings)
            watch_steps(self)  # torch drops the hooks of an optimizer that is copied

    def forward(self, obs: th.Tensor, deterministic: bool = False) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
        """Choose an action for each observation.

        :param obs: uint8 rows of prompts, ``(B, max_bytes)``.
        :param deterministic: whether to take the most likely action instead of sampling one.
        :return: actions, int64 ``(B,)``, or rows of token ids, ``(B, W)``; values, float32 ``(B, 1)``;
            log-probabilities, float32 ``(B,)``.
        """
        self.critic_only = False  # it is for one update; after an error in that, nobody else would end it
        end_update(self)
        decision = self._guarded(self.actor.act, obs, deterministic)
        if self.guard is not None:
            self.guard.acted(decision)
        return decision.actions, decision.values, decision.log_prob

    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> th.Tensor:
        """Return actions alone, for ``model.predict``."""
        return self._guarded(self.actor.choose, observation, deterministic)

    def evaluate_actions(self, obs: PyTorchObs, actions: th.Tensor) -> tuple[th.Tensor, th.Tensor, th.Tensor | None]:
        """Return values, log-probabilities and entropies of given actions, with gradients.

        :param obs: uint8 rows of prompts, ``(B, max_bytes)``.
        :param actions: indices of phrases, ``(B,)``, or rows of token ids, ``(B, W)``; any numeric dtype.
        :return: values ``(B, 1)``, log-probabilities ``(B,)`` and entropies in nats ``(B,)``, all float32.
        """
        decision: Decision = self._guarded(self.actor.evaluate, obs, actions)
        if self.reference is not None and not self.critic_only:
            decision = self._guarded(self.reference.pull, self.actor, decision)
        if self.guard is not None and th.is_grad_enabled():
            self.guard.evaluated(self, decision)
        return decision.values, decision.log_prob, decision.entropy

    def predict_values(self, obs: PyTorchObs) -> th.Tensor:
        """Return the values of prompts.

        :param obs: uint8 rows of prompts, ``(B, max_bytes)``.
        :return: float32 ``(B, 1)``.
        """
        return self._guarded(self.actor.values, obs)

    def get_distribution(self, obs: PyTorchObs) -> Distribution:
        """Return the distribution over phrases; illegal indices have probability 0.

        :param obs: uint8 rows of prompts, ``(B, max_bytes)``.
        :raises NotImplementedError: if the policy writes, because free text has no list of actions.
        """
        return self._guarded(self.actor.distribution, obs)

    def extract_features(self, obs: PyTorchObs, features_extractor: Any = None) -> th.Tensor:
        """Raise an error, because the policy has no feature extractor.

        :raises NotImplementedError: always; the message names what to use instead.
        """
        raise NotImplementedError(
            "LMActorCriticPolicy has no features extractor; use get_distribution(obs), predict_values(obs) or "
            "evaluate_actions(obs, actions)"
        )

    def _guarded(self, ask: Callable[..., T], *inputs: Any) -> T:
        """Ask the actor, one thread at a time, and stop the training if a number is not finite."""
        if th.is_inference_mode_enabled():  # what is remembered is used in training as well
            with th.inference_mode(False), th.no_grad():
                return self._guarded(ask, *inputs)
        try:
            with self.alone():
                return ask(*inputs)
        except FloatingPointError:
            if self.guard is None:
                raise
            raise self.guard.stop(self, overflow(self)) from None

    @property
    def actor_learns(self) -> bool:
        """Return whether optimizer steps change what the policy does."""
        return not self.critic_only and len(self.optimizer.param_groups) > 1

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "lr_schedule": self._dummy_schedule,  # as in SB3, whose load() makes a policy without its learner
            "optimizer_class": self.optimizer_class,
            "optimizer_kwargs": self.optimizer_kwargs,
            **asdict(self._resolved(self.backbone.lora)),
        }

    def _resolved(self, lora: Any) -> PolicySettings:
        """Return the settings, with those of the adapter to start from in place of its name."""
        return replace(self.settings, adapter=None, lora=lora, reference=saved_reference(self.settings.reference))

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return what a checkpoint holds.

        That is the trainable weights, never a frozen base weight, and a record of settings, spaces and base model.
        """
        made_with = self._get_constructor_parameters()
        record = checkpoints.make_record(self.backbone, made_with, from_adapter=self.settings.adapter is not None)
        with self.alone():  # while a reference is asked, its weights stand in place of the policy's
            return checkpoints.saved_state(self.backbone, super().state_dict(*args, **kwargs), record)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load what :meth:`state_dict` returned.

        :param state_dict: weights of a policy on the same base model.
        :param strict: whether names must match, as in torch; frozen base weights are never expected.
        :param assign: whether to replace tensors instead of copying into them, as in torch.
        :raises ValueError: if the weights were trained on another base model; the message says in what it differs.
        """
        waiting = "_missing" in self.__dict__
        has_learnt = not waiting and bool(self.optimizer.state)
        lora = checkpoints.lora_to_build(state_dict, self.settings, None if waiting else self.backbone, has_learnt)
        if lora is not None:
            self.__dict__.pop("_missing", None)
            self._build_on(Backbone(self._resolved(lora)))
            self.to(next(iter(state_dict.values())).device)
        checkpoints.check_base(self.backbone, state_dict)
        keys = super().load_state_dict(checkpoints.weights_of(state_dict), strict=strict, assign=assign)
        with self.alone():
            self.actor.watch_weights()
            self.backbone.value_head.forget_seen()
        if self.guard is not None:
            self.guard.forget_weights()
        return keys

    def set_reference(self) -> None:
        """Make the policy as it is now the reference that training must not forget.

        :raises ValueError: if the policy keeps no reference of its own; the message says how it does.
        """
        with self.alone():
            take_reference(self.reference, self.backbone)

    def save_adapter(self, folder: str | Path) -> None:
        """Write the adapter as a standard PEFT folder.

        ``peft.PeftModel.from_pretrained(base, folder)`` reads it. The value head is not saved: only training needs it.

        :param folder: folder to write; it is made if it does not exist.
        :raises ValueError: if the policy has no adapter; the message says how to save the model.
        """
        with self.alone():
            export_adapter(self.backbone, Path(folder))

    def export(self, folder: str | Path, overwrite: bool = False) -> None:
        """Write the trained model as a plain folder of Transformers.

        ``AutoModelForCausalLM.from_pretrained(folder)``, or ``AutoModelForSeq2SeqLM``, reads it and gives the same
        scores. The adapter is merged in the base model's precision. Tokenizer and model card are written, too.

        :param folder: folder to write. It appears when all of it is written.
        :param overwrite: whether a model that is in the folder already is replaced.
        :raises FileExistsError: if the folder is not empty; the message says how to replace it.
        :raises ValueError: if the weights cannot be merged; the message says how to merge them by hand.
        """
        with self.alone():
            export_model(self.backbone, self.settings, self.guard, Path(folder), overwrite)

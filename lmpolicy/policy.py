"""Make a language model the policy of a Stable-Baselines3 learner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch as th
from gymnasium import spaces
from peft import PeftModel
from stable_baselines3.common.distributions import Distribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule

from lmpolicy.learners import check_learner, is_loading
from lmpolicy.lm.actor import Decision
from lmpolicy.lm.actors import make_actor
from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.checkpoints import check_base, saved_state, shorten_steps, take_lora
from lmpolicy.lm.exporting import export_model
from lmpolicy.lm.guard import Guard, overflow
from lmpolicy.lm.settings import PolicySettings, check_spaces, for_space

T = TypeVar("T")


class LMActorCriticPolicy(ActorCriticPolicy):
    """Act with a causal LM, and estimate values from its hidden states.

    A value head estimates the values. The probability of an action is the softmax over the scores of the legal phrases.
    The policy works with the unmodified :class:`~stable_baselines3.PPO` and :class:`~stable_baselines3.A2C`. The
    entries of ``policy_kwargs`` are those of :class:`~lmpolicy.lm.settings.PolicySettings`.

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
    :param optimizer_class: class of the optimizer, as in SB3.
    :param optimizer_kwargs: arguments of the optimizer, as in SB3.
    :param settings: entries of ``policy_kwargs``, see :class:`~lmpolicy.lm.settings.PolicySettings`.
    :raises TypeError: for a misspelt setting, an observation space that holds no text, or a learner that is not PPO or
        A2C; the message says what to do.
    :raises ValueError: for a value out of range; the message names the allowed values.
    """

    def __new__(cls, *_: Any, **__: Any) -> Any:
        """Refuse other learners here, because ARS passes too few arguments to get as far as ``__init__``."""
        check_learner()
        return super().__new__(cls)

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        lr_schedule: Schedule,
        use_sde: bool = False,
        *,
        optimizer_class: type[th.optim.Optimizer] = th.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.settings = for_space(PolicySettings.of(settings), observation_space)
        self._saved_lora: Any = None  # settings of the adapter that a checkpoint was made with
        check_spaces(observation_space, action_space)
        if use_sde:
            raise ValueError("use_sde=True is for continuous actions; a choice among phrases has none")
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            optimizer_class=optimizer_class,
            optimizer_kwargs=optimizer_kwargs,
        )

    def _build(self, lr_schedule: Schedule) -> None:
        """Build the model, the actor and the optimizer, without SB3's own layers.

        A checkpoint holds the settings of the adapter that the training started from. So a policy that SB3 makes while
        it loads one is built when the checkpoint's weights arrive: the adapter's folder may be gone by then.
        """
        if self.settings.adapter is not None and self._saved_lora is None and is_loading():
            self._build_later = partial(self._build, lr_schedule)
            return
        self.backbone = Backbone(self.settings if self._saved_lora is None else self._resolved(self._saved_lora))
        self.actor = make_actor(self.backbone, self.action_space, self.settings)
        self.guard = Guard() if self.settings.guard_rails else None
        self.critic_only = False  # if True, optimizer steps do not change the LM
        critic = list(self.backbone.value_head.parameters())
        actor = [parameter for parameter in self.backbone.lm.parameters() if parameter.requires_grad]
        groups = [{"params": actor}, {"params": critic}] if actor else [{"params": critic}]
        self.optimizer = self.optimizer_class(groups, lr=lr_schedule(1), **self.optimizer_kwargs)  # type: ignore[call-arg]
        # SB3 writes one rate into every group before each update, so the factor is applied at each step.
        self.optimizer.register_step_pre_hook(self._before_step)
        self.optimizer.register_step_post_hook(self._after_step)
        self.optimizer.register_state_dict_post_hook(shorten_steps)
        self.register_load_state_dict_post_hook(self._ignore_frozen_keys)

    def set_training_mode(self, mode: bool) -> None:
        """Put the policy into training or evaluation mode.

        SB3 asks for it in every ``predict``; walking all modules takes as long as a tenth of an answer does.

        :param mode: True for training.
        """
        if mode != self.training:
            super().set_training_mode(mode)

    def forward(self, obs: th.Tensor, deterministic: bool = False) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
        """Choose an action for each observation.

        :param obs: uint8 rows of prompts, ``(B, max_bytes)``.
        :param deterministic: whether to take the most likely action instead of sampling one.
        :return: actions, int64 ``(B,)``, or rows of token ids, ``(B, W)``; values, float32 ``(B, 1)``;
            log-probabilities, float32 ``(B,)``.
        """
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

        A language model reads text instead.

        :raises NotImplementedError: always; the message names what to use instead.
        """
        raise NotImplementedError(
            "LMActorCriticPolicy has no features extractor; use get_distribution(obs), predict_values(obs) or "
            "evaluate_actions(obs, actions)"
        )

    def _guarded(self, ask: Callable[..., T], *inputs: Any) -> T:
        """Ask the actor, and stop the training if a number is not finite."""
        try:
            return ask(*inputs)
        except FloatingPointError:
            if self.guard is None:
                raise
            raise self.guard.stop(self, overflow(self)) from None

    @property
    def actor_learns(self) -> bool:
        """Return whether optimizer steps change what the policy does."""
        return not self.critic_only and len(self.optimizer.param_groups) > 1

    def _before_step(self, *_: Any) -> None:
        if self.guard is not None:
            self.guard.check_gradients(self)
        *actor, critic = self.optimizer.param_groups
        if self.critic_only:
            for parameter in (parameter for group in actor for parameter in group["params"]):
                parameter.grad = None  # None, because with a zero Adam would follow its momentum
        self._scheduled_rate = critic["lr"]
        critic["lr"] = critic["lr"] * self.settings.critic_lr_factor

    def _after_step(self, *_: Any) -> None:
        self.optimizer.param_groups[-1]["lr"] = self._scheduled_rate
        if self.guard is not None:
            self.guard.stepped()
        self.backbone.value_head.update_statistics()
        self.actor.forget()

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
        return replace(self.settings, adapter=None, lora=lora)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return what a checkpoint holds.

        It holds the trainable weights and the fingerprint of the base model. A checkpoint never holds a frozen base
        weight.
        """
        state = super().state_dict(*args, **kwargs)
        return saved_state(self.backbone, state, with_lora=self.settings.adapter is not None)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load what :meth:`state_dict` returned.

        :param state_dict: weights of a policy on the same base model.
        :param strict: whether names must match, as in torch; frozen base weights are never expected.
        :param assign: whether to replace tensors instead of copying into them, as in torch.
        :raises ValueError: if the weights were trained on another base model; the message says how to name the right
            one.
        """
        state = dict(state_dict)
        lora = take_lora(state)
        if not hasattr(self, "backbone"):
            self._build_as_saved(state, lora)
        elif lora is not None and lora != self.backbone.lora:
            raise ValueError(f"these weights are of an adapter with the settings {lora}, not {self.backbone.lora}")
        check_base(self.backbone, state)
        keys = super().load_state_dict(state, strict=strict, assign=assign)
        self.actor.watch_weights()
        if self.guard is not None:
            self.guard.forget_weights()
        return keys

    def _build_as_saved(self, state: Mapping[str, Any], lora: Any) -> None:
        """Build the policy with the adapter settings of a checkpoint, on the device of the checkpoint's weights."""
        if lora is None:  # no ValueError, because SB3's load would look at the optimizer to handle it
            raise RuntimeError(
                f"this checkpoint was made without adapter={str(self.settings.adapter)!r}, which is for new policies: "
                "leave it out of policy_kwargs in custom_objects"
            )
        self._saved_lora = lora
        self._build_later()
        self.to(next(iter(state.values())).device)

    def save_adapter(self, folder: str | Path) -> None:
        """Write the adapter as a standard PEFT folder.

        ``peft.PeftModel.from_pretrained(base, folder)`` reads it. The value head is not saved, because only training
        needs it.

        :param folder: folder to write; it is made if it does not exist.
        :raises ValueError: if the policy has no adapter; the message says how to save the model.
        """
        lm = self.backbone.lm
        if not isinstance(lm, PeftModel):
            mode = self.settings.lora
            raise ValueError(f"no adapter with lora={mode!r}; policy.export(folder) saves the model")
        lm.save_pretrained(str(folder), save_embedding_layers=False)  # "auto" would ask the hub for the vocabulary size

    def export(self, folder: str | Path, overwrite: bool = False) -> None:
        """Write the trained model as a plain folder of Transformers.

        ``AutoModelForCausalLM.from_pretrained(folder)`` reads it and gives the same scores. The adapter is merged, in
        the precision of the base model; tokenizer, chat template and a model card are in the folder. The value head is
        not saved. The policy stays as it is, so that the training can go on.

        :param folder: folder to write. It appears when all of it is written.
        :param overwrite: whether a model that is in the folder already is replaced.
        :raises FileExistsError: if the folder is not empty; the message says how to replace it.
        :raises ValueError: if the weights cannot be merged; the message says how to merge them by hand.
        """
        export_model(self.backbone, self.settings, self.guard, Path(folder), overwrite)

    def _ignore_frozen_keys(self, _: Any, keys: Any) -> None:
        """Do not report frozen base weights as missing; checkpoints never hold them."""
        frozen = self.backbone.frozen
        keys.missing_keys[:] = [name for name in keys.missing_keys if name.removeprefix("backbone.") not in frozen]

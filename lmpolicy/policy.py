"""LMActorCriticPolicy: a language model behind the surface that Stable-Baselines3 calls on a policy."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch as th
from gymnasium import spaces
from peft import PeftModel
from stable_baselines3.common.distributions import CategoricalDistribution, Distribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule

from lmpolicy.lm.backbone import DEFAULT_LORA, Backbone
from lmpolicy.lm.generation import GenerationEngine, Scored
from lmpolicy.lm.guard import Guard, overflow
from lmpolicy.lm.scoring import ScoringEngine
from lmpolicy.lm.settings import check_settings, check_spaces, check_tokenizer, refuse_unknown
from lmpolicy.text.spaces import TokenSpace


class LMActorCriticPolicy(ActorCriticPolicy):
    """A causal LM as actor and critic: softmax over the scores of the legal phrases, value head on its hidden states.

    Works with the unmodified :class:`~stable_baselines3.PPO` and :class:`~stable_baselines3.A2C`. Everything after
    ``lr_schedule`` is a ``policy_kwargs`` entry; all are JSON-able, so that a checkpoint can name its base model.

    Example:
        >>> from stable_baselines3 import PPO
        >>> import gymnasium as gym
        >>> from lmpolicy import LMActorCriticPolicy, TextObservationWrapper
        >>> env = TextObservationWrapper(gym.make("CartPole-v1"))
        >>> model = PPO(LMActorCriticPolicy, env, policy_kwargs=dict(lora=dict(r=8)))

    :param observation_space: the :class:`TextSpace` of a :class:`TextObservationWrapper`.
    :param action_space: ``Discrete(K)``; index i is the i-th legal phrase of an observation. Or a :class:`TokenSpace`;
        the model then writes its answers, see ``action_mode`` of :class:`TextObservationWrapper`.
    :param lr_schedule: learning rate as a function of the remaining progress.
    :param use_sde: must be False; SB3 passes it.
    :param model: hub id or local folder of a causal LM; ``None``: the bundled one; ``"lmpolicy/worlds"``: the bundled
        one for MiniGrid, BabyAI and TextWorld.
    :param revision: branch, tag or commit of a hub model.
    :param dtype: of the base: ``"float32"``, ``"bfloat16"``, ``"float16"``, or ``"auto"``: half precision where the
        base is frozen and the device fast at it. Adapters, value head and log-probabilities are float32 in any case.
    :param lora: arguments of :class:`peft.LoraConfig`, on all linear layers unless ``target_modules`` says otherwise;
        ``None``: full fine-tuning; ``"frozen"``: only the value head learns. Default: rank 16.
    :param score_normalization: ``"sum"`` of a phrase's token log-probabilities (default: an exact probability), or its
        mean per ``"token"`` or per ``"word"`` (so that long phrases are not unlikely for being long).
    :param temperature: divides the scores; above 0.
    :param value_head: hidden layer sizes of the value head.
    :param value_gradient: whether the value loss trains the LM, too. Off by default: it drowns the policy gradient.
    :param critic_lr_factor: learning rate of the value head as a multiple of the actor's.
    :param micro_batch_size: at most this many distinct prompts at once, in the update by checkpointing: the same
        gradients, less memory, one more forward. ``None``: all at once.
    :param ratio_level: for answers in free text: PPO's log-probability of an answer is the ``"mean"`` over its tokens,
        or their ``"sum"``; see :class:`lmpolicy.lm.generation.GenerationEngine`.
    :param stop: for answers in free text: texts that end one, beside the model's own end of a turn. ``None``: a line
        break where the model has no chat template, else none.
    :param guard_rails: stop before an optimizer step that is not finite, saving the last good weights, and warn once of
        a collapsed entropy, of batches without differences and of ignored input; see :class:`lmpolicy.lm.guard.Guard`.
    :param trust_remote_code: let a hub model bring its own code.
    :param optimizer_class: as in SB3.
    :param optimizer_kwargs: as in SB3.
    :raises TypeError: for a misspelt key, or an observation space that holds no text.
    :raises ValueError: for a value out of range.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        lr_schedule: Schedule,
        use_sde: bool = False,
        *,
        model: str | None = None,
        revision: str | None = None,
        dtype: str = "auto",
        lora: Mapping[str, Any] | str | None = DEFAULT_LORA,
        score_normalization: str = "sum",
        temperature: float = 1.0,
        value_head: Sequence[int] = (64,),
        value_gradient: bool = False,
        critic_lr_factor: float = 1.0,
        micro_batch_size: int | None = None,
        ratio_level: str = "mean",
        stop: Sequence[str] | None = None,
        guard_rails: bool = True,
        trust_remote_code: bool = False,
        optimizer_class: type[th.optim.Optimizer] = th.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        refuse_unknown(unknown)
        check_spaces(observation_space, action_space)
        if use_sde:
            raise ValueError("use_sde=True is for continuous actions; a choice among phrases has none")
        self._settings: dict[str, Any] = {
            "model": model,
            "revision": revision,
            "dtype": dtype,
            "lora": dict(lora) if isinstance(lora, Mapping) else lora,
            "score_normalization": score_normalization,
            "temperature": temperature,
            "value_head": value_head,
            "value_gradient": value_gradient,
            "critic_lr_factor": critic_lr_factor,
            "micro_batch_size": micro_batch_size,
            "ratio_level": ratio_level,
            "stop": stop,
            "guard_rails": guard_rails,
            "trust_remote_code": trust_remote_code,
        }
        check_settings(**self._settings)
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            optimizer_class=optimizer_class,
            optimizer_kwargs=optimizer_kwargs,
        )

    def _build(self, lr_schedule: Schedule) -> None:
        """Build backbone, engine and optimizer; SB3's own layers are never made."""
        settings = copy.deepcopy(self._settings)
        keys = ("model", "revision", "dtype", "lora", "value_head", "value_gradient", "trust_remote_code")
        self.backbone = Backbone(**{key: settings[key] for key in keys})
        self.engine = self._engine(settings)
        self.guard = Guard() if settings["guard_rails"] else None
        self.critic_only = False
        critic = list(self.backbone.value_head.parameters())
        actor = [p for p in self.backbone.lm.parameters() if p.requires_grad]
        groups = [{"params": actor}, {"params": critic}] if actor else [{"params": critic}]
        self.optimizer = self.optimizer_class(groups, lr=lr_schedule(1), **self.optimizer_kwargs)  # type: ignore[call-arg]
        # SB3 writes one rate into every group before each update, so the factor comes in at the step itself.
        self.optimizer.register_step_pre_hook(self._before_step)
        self.optimizer.register_step_post_hook(self._after_step)
        self.optimizer.register_state_dict_post_hook(_shorten_steps)
        self.register_load_state_dict_post_hook(self._excuse_base)

    def forward(self, obs: th.Tensor, deterministic: bool = False) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
        """Choose an action for each observation.

        :param obs: uint8 ``(B, max_bytes)``.
        :param deterministic: take the most likely phrase instead of sampling.
        :return: actions int64 ``(B,)``, or rows of token ids ``(B, W)``; values float32 ``(B, 1)``, log-probabilities
            float32 ``(B,)``.
        """
        obs = obs.cpu()  # once: the engine and the guard read it there
        if isinstance(self.engine, GenerationEngine):
            actions, scored = self._write(obs, deterministic)
            log_prob = self.engine.log_prob(scored, actions)[0]
            self._stop_unless_finite(log_prob)
            if self.guard is not None:
                self.guard.counted(len(obs))
            return actions, scored.values[:, None], log_prob
        distribution, values = self._distribution(obs)
        actions = distribution.get_actions(deterministic=deterministic)
        if self.guard is not None:
            self.guard.acted(obs, distribution.distribution)
        return actions, values, distribution.log_prob(actions)

    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> th.Tensor:
        """Actions alone, as ``model.predict`` asks for them."""
        if not isinstance(self.engine, GenerationEngine):
            return super()._predict(observation, deterministic)
        assert isinstance(observation, th.Tensor)
        return self._write(observation, deterministic)[0]

    def evaluate_actions(self, obs: PyTorchObs, actions: th.Tensor) -> tuple[th.Tensor, th.Tensor, th.Tensor | None]:
        """Value, log-probability and entropy of given actions, with gradients.

        :param obs: uint8 ``(B, max_bytes)``.
        :param actions: ``(B,)``, or rows of token ids ``(B, W)``; any numeric dtype.
        :return: values ``(B, 1)``, log-probabilities ``(B,)``, entropies in nats ``(B,)``; all float32.
        """
        assert isinstance(obs, th.Tensor)
        if isinstance(self.engine, GenerationEngine):
            rows = actions.long()  # SB3 hands rows over as float32, which is exact for all ids of a TokenSpace
            scored = self.engine.score(obs, rows.cpu().numpy())
            values, (log_prob, entropy) = scored.values[:, None], self.engine.log_prob(scored, rows)
            self._stop_unless_finite(log_prob)
            outputs = log_prob
        else:
            distribution, values = self._distribution(obs)
            log_prob, entropy = distribution.log_prob(actions.long().flatten()), distribution.entropy()
            outputs = distribution.distribution.logits
        if self.guard is not None and th.is_grad_enabled():
            self.guard.evaluated(self, outputs, log_prob, values)
        return values, log_prob, entropy

    def predict_values(self, obs: PyTorchObs) -> th.Tensor:
        """State values.

        :param obs: uint8 ``(B, max_bytes)``.
        :return: float32 ``(B, 1)``.
        """
        assert isinstance(obs, th.Tensor)
        if isinstance(self.engine, GenerationEngine):
            return self.engine.values(obs)[:, None]
        return self._distribution(obs)[1]

    def get_distribution(self, obs: PyTorchObs) -> Distribution:
        """The distribution over phrases; illegal indices have probability 0.

        :param obs: uint8 ``(B, max_bytes)``.
        :raises NotImplementedError: for answers in free text, of which there is no list.
        """
        assert isinstance(obs, th.Tensor)
        if isinstance(self.engine, GenerationEngine):
            raise NotImplementedError(
                "free text has no distribution over a list of actions; use evaluate_actions(obs, actions), or make the "
                'wrapper with action_mode="score"'
            )
        return self._distribution(obs)[0]

    def extract_features(self, obs: PyTorchObs, features_extractor: Any = None) -> th.Tensor:
        """Not there: an LM reads text, it has no feature extractor.

        :raises NotImplementedError: always.
        """
        raise NotImplementedError(
            "LMActorCriticPolicy has no features extractor; use get_distribution(obs), predict_values(obs) or "
            "evaluate_actions(obs, actions)"
        )

    def _engine(self, settings: dict[str, Any]) -> ScoringEngine | GenerationEngine:
        """What answers: a choice among phrases, or free text."""
        options = {key: settings[key] for key in ("score_normalization", "temperature", "micro_batch_size")}
        if isinstance(self.action_space, TokenSpace):
            check_tokenizer(self.action_space, self.backbone.tokenizer, self._settings["model"])
            more = {key: settings[key] for key in ("ratio_level", "stop")}
            return GenerationEngine(self.backbone, self.action_space, **more, **options)
        assert isinstance(self.action_space, spaces.Discrete)
        return ScoringEngine(self.backbone, int(self.action_space.n), **options)

    def _write(self, obs: th.Tensor, deterministic: bool) -> tuple[th.Tensor, Scored]:
        """Answers in free text, and what the model makes of them."""
        assert isinstance(self.engine, GenerationEngine)
        try:
            return self.engine.sample(obs, deterministic)
        except FloatingPointError:
            if self.guard is None:
                raise
            raise self.guard.stop(self, overflow(self)) from None

    def _stop_unless_finite(self, outputs: th.Tensor) -> None:
        """Not left to torch: it checks what a distribution is given only as long as nobody has switched that off."""
        if self.guard is not None and not bool(outputs.isfinite().all()):
            raise self.guard.stop(self, overflow(self))

    def _distribution(self, obs: th.Tensor) -> tuple[CategoricalDistribution, th.Tensor]:
        assert isinstance(self.engine, ScoringEngine)
        scores, values = self.engine(obs)  # (B, K), (B,)
        self._stop_unless_finite(scores)
        distribution = CategoricalDistribution(scores.shape[1])
        return distribution.proba_distribution(action_logits=scores), values[:, None]

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "lr_schedule": self._dummy_schedule,  # as SB3 does: load() is for a policy without its learner
            "optimizer_class": self.optimizer_class,
            "optimizer_kwargs": self.optimizer_kwargs,
            **copy.deepcopy(self._settings),
        }

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """What a checkpoint holds: trainable weights and the fingerprint of the base, never a base weight."""
        state = super().state_dict(*args, **kwargs)
        frozen = self.backbone.frozen
        kept = {name: value for name, value in state.items() if name.removeprefix("backbone.") not in frozen}
        return {**kept, "base_fingerprint": self.backbone.base_fingerprint}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load what :meth:`state_dict` returned.

        :param state_dict: from a policy on the same base model.
        :param strict: as in torch; base weights are never expected.
        :param assign: as in torch.
        :raises ValueError: if the base model is another one than the weights were trained on.
        """
        state = dict(state_dict)
        mine, saved = self.backbone.base_fingerprint, state.pop("base_fingerprint", None)
        # A fully fine-tuned checkpoint holds every weight: what it started from does not matter any more.
        if self.backbone.frozen and (saved is None or not th.equal(saved.to(mine.device), mine)):
            raise ValueError(
                f"this checkpoint was trained on another base model than {self.backbone.name!r} as it is here now. Its "
                "adapter means nothing on other weights: restore the model or pin its revision, or name the right one "
                'with PPO.load(path, custom_objects={"policy_kwargs": {..., "model": "the base it was trained on"}})'
            )
        keys = super().load_state_dict(state, strict=strict, assign=assign)
        self.engine.watch_weights()
        if self.guard is not None:
            self.guard.forget_weights()
        return keys

    def save_adapter(self, folder: str | Path) -> None:
        """Write the adapter as a standard PEFT folder: ``peft.PeftModel.from_pretrained(base, folder)`` reads it.

        :param folder: where to; made if it is not there. The value head stays out: only training needs it.
        :raises ValueError: if the policy has no adapter.
        """
        lm = self.backbone.lm
        if not isinstance(lm, PeftModel):
            mode = self._settings["lora"]
            raise ValueError(f"no adapter with lora={mode!r}; policy.backbone.lm.save_pretrained saves the model")
        lm.save_pretrained(str(folder), save_embedding_layers=False)  # "auto" would ask the hub for the vocabulary

    def _before_step(self, *_: Any) -> None:
        if self.guard is not None:
            self.guard.check_gradients(self)
        critic = self.optimizer.param_groups[-1]
        if self.critic_only:
            for group in self.optimizer.param_groups[:-1]:
                for parameter in group["params"]:
                    parameter.grad = None  # not a zero: Adam would go on in the direction of its momentum
        self._scheduled_rate = critic["lr"]
        critic["lr"] = critic["lr"] * self._settings["critic_lr_factor"]

    def _after_step(self, *_: Any) -> None:
        self.optimizer.param_groups[-1]["lr"] = self._scheduled_rate
        if self.guard is not None:
            self.guard.optimizer_steps += 1
        self.backbone.value_head.update_statistics()
        self.engine.forget()

    def _excuse_base(self, _: Any, keys: Any) -> None:
        """Base weights are never in a checkpoint, so they are not missing from it."""
        frozen = self.backbone.frozen
        keys.missing_keys[:] = [name for name in keys.missing_keys if name.removeprefix("backbone.") not in frozen]


def _shorten_steps(_: th.optim.Optimizer, state_dict: dict[str, Any]) -> None:
    """Write Adam's step counts as numbers, which it reads as well: a tensor takes half a kilobyte in a checkpoint."""
    states = state_dict["state"]
    state_dict["state"] = {
        index: {k: float(v) if k == "step" and isinstance(v, th.Tensor) else v for k, v in state.items()}
        for index, state in states.items()
    }

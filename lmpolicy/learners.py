"""Look for the learner that makes a policy, and refuse those that it does not fit."""

from __future__ import annotations

from traceback import walk_stack

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

REASONS = {
    "MaskablePPO": "masks are built in, because a phrase that is not legal has probability 0: use PPO",
    "RecurrentPPO": (
        "it needs a policy with an LSTM. A language model reads past turns in its prompt: use PPO with "
        "TextObservationWrapper(env, history=k)"
    ),
    "TRPO": (
        "it needs second derivatives by all weights, which frozen weights and the kernels of attention do not have: "
        "use PPO, with target_kl to keep updates small"
    ),
    "ARS": "it draws random directions for all weights, of which a language model has too many: use PPO",
}
"""Why the policy does not fit a learner of sb3_contrib, and what to use instead."""
NO_POLICY_GRADIENT = (
    "it learns values of actions from old experience, and the policy has probabilities of phrases that only a policy "
    "gradient trains: use PPO"
)


def check_learner() -> None:
    """Refuse a learner that the policy does not fit.

    SB3 tells a policy nothing about the learner, so the learner is looked for among the callers. A policy that is made
    without a learner passes, and so does any other on-policy learner.

    :raises TypeError: if the policy does not fit; the message says which learner to use.
    """
    learner = learner_in_setup()
    if learner is None:
        return
    kinds = [kind.__name__ for kind in type(learner).__mro__ if kind.__module__.startswith("sb3_contrib")]
    reason = next((REASONS[kind] for kind in kinds if kind in REASONS), None)
    if reason is None and not isinstance(learner, OnPolicyAlgorithm):
        reason = NO_POLICY_GRADIENT
    if reason is not None:
        raise TypeError(f"LMActorCriticPolicy works with PPO and A2C, not with {type(learner).__name__}: {reason}")


def check_batch_size(n_processes: int) -> None:
    """Refuse minibatches that have fewer rows than there are processes.

    :param n_processes: number of processes that share the rows.
    :raises ValueError: if some processes would have nothing to do in any update; the message says what to change.
    """
    batch_size = getattr(learner_in_setup(), "batch_size", None)
    if isinstance(batch_size, int) and batch_size < n_processes:
        raise ValueError(
            f"minibatches of {batch_size} rows cannot be shared by {n_processes} processes: pass PPO a batch_size of "
            f"{n_processes} or more, or start fewer processes"
        )


def learner_in_setup() -> BaseAlgorithm | None:
    """Return the learner whose setup makes its policy or its rollout buffer now; ``None`` if there is none."""
    setups = (frame.f_locals.get("self") for frame, _ in walk_stack(None) if frame.f_code.co_name == "_setup_model")
    return next((one for one in setups if isinstance(one, BaseAlgorithm)), None)

"""Learn five games at once from sentences: PPO of Stable-Baselines3, with one small language model for all of them.

    python examples/many_envs.py

Text makes the observations and the actions of all envs alike, so that one policy with one LoRA and one value head plays
all of them. Plays each game at random, with the untrained model and with the trained model, and prints the returns.
Writes the checkpoint to a new folder in runs/many_envs. Ctrl-C ends the training early. With --resume runs/many_envs/1
and otherwise the same arguments, a run that was stopped goes on.
"""

import time
from dataclasses import replace

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import ProgressBarCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.utils import LinearSchedule

import lmpolicy
from lmpolicy import (
    EntropySchedule,
    EnvCopies,
    LMActorCriticPolicy,
    PerEnvAdvantages,
    WatchLearning,
    hyperparameters,
    make_multi_env,
)

ACROBOT = hyperparameters("Acrobot-v1")
ENVS = [
    EnvCopies("CartPole-v1", 3),
    EnvCopies("Blackjack-v1", 3, {"sab": False, "natural": False}),
    EnvCopies("FrozenLake-v1", 3, {"is_slippery": False}),
    EnvCopies("CliffWalking-v1", 3, {"max_episode_steps": 200}),  # without a limit, it ends nowhere but at the goal
    # In round numbers, and trained on rewards that show the way; the returns are without them.
    EnvCopies("Acrobot-v1", 4, task=ACROBOT.task, training_wrapper=ACROBOT.training_wrapper),
]
ADVANTAGES = {
    "CartPole-v1": {"gamma": 0.995, "divide_by_std": True},  # the cart takes hundreds of steps to the end of the track
    "Blackjack-v1": {"gamma": 1.0, "gae_lambda": 1.0, "divide_by_std": True},
    "FrozenLake-v1": {"gae_lambda": 1.0},
    "CliffWalking-v1": {"gae_lambda": 0.9},
    "Acrobot-v1": {"gae_lambda": 0.8, "divide_by_std": True},
}
"""What each env has of its own. Advantages of Acrobot, for one, are a tenth of those of Blackjack at first; as they
are, the entropy bonus that suits Blackjack would keep Acrobot at random play. Those of lake and cliff stay as they are:
scaled to size 1 before the goal is found, they are noise."""
ENT_COEF = (0.02, -0.01)
"""Weight of the entropy bonus at the beginning and at the end."""
HYPERPARAMETERS = {
    "n_steps": 128,
    "batch_size": 512,
    "n_epochs": 5,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "normalize_advantage": False,  # rewards are scaled env by env already, and advantages where it helps
    "ent_coef": ENT_COEF[0],
    "learning_rate": LinearSchedule(start=1e-3, end=0.0, end_fraction=1.0),
    "rollout_buffer_class": PerEnvAdvantages,
    "rollout_buffer_kwargs": {"own": ADVANTAGES},
}
POLICY_KWARGS = {
    "critic_lr_factor": 3.0,
    "lora": {"r": 16, "lora_alpha": 128},
    "score_normalization": "sum",
    "optimizer_class": "Adamax",
}
STEPS = 20_480
"""Env steps in each env."""


def make_callbacks():
    """Make the callbacks of a training: the returns of each env in the log, and less exploration towards the end."""
    return [WatchLearning(), EntropySchedule(*ENT_COEF)]


def main(argv=None):
    args = parse_arguments(argv)
    run = args.resume or lmpolicy.new_run(args.output)

    callbacks = [*make_callbacks(), lmpolicy.Checkpoints(run)]
    train_env = make_multi_env(ENVS, args.seed, gamma=HYPERPARAMETERS["gamma"])
    try:
        if args.resume:
            model = lmpolicy.resume(run, train_env, callbacks, device=args.device)
        else:
            model = PPO(
                LMActorCriticPolicy,
                train_env,
                policy_kwargs={**POLICY_KWARGS, "model": args.model},
                device=args.device,
                seed=args.seed,
                **HYPERPARAMETERS,
            )
    except OSError as error:  # no such language model
        raise SystemExit(str(error)) from None

    # The same spaces for one env as for all, and rewards as they are.
    options = {"seed": args.seed + 1000, "normalize_reward": False, "n_actions": train_env.action_space.n}
    copies = min(10, args.episodes)
    eval_envs = {one.env_id: make_multi_env([replace(one, n_envs=copies)], **options) for one in ENVS}

    def evaluate(player):
        """Mean return and its standard error in each env, of what ``player(env)`` returns."""
        scores = []
        for env in eval_envs.values():
            returns, _ = evaluate_policy(player(env), env, args.episodes, return_episode_rewards=True)
            scores.append((np.mean(returns), np.std(returns) / len(returns) ** 0.5))
        return scores

    scores = {"random": evaluate(lambda env: lmpolicy.RandomPlay(env, args.seed))}
    if not args.resume:
        scores["before training"] = evaluate(lambda env: model)

    left = max(0, args.steps - model.num_timesteps)
    print(f"Training for {left:,} env steps on {model.device}; Ctrl-C stops early and keeps what was learnt.")
    start, bar, ending = time.perf_counter(), ProgressBarCallback(), ""
    try:
        model.learn(left, callback=[bar, *callbacks], reset_num_timesteps=args.resume is None)
    except KeyboardInterrupt:
        bar.on_training_end()
        ending = " (stopped early by Ctrl-C)"
    minutes = (time.perf_counter() - start) / 60

    checkpoint = lmpolicy.save(model, run / "model")
    scores["after training"] = evaluate(lambda env: model)
    print(f"\nmean return of {args.episodes} episodes\n  {'env':<16}" + "".join(f"{name:>20}" for name in scores))
    for env_id, *cells in zip(eval_envs, *scores.values(), strict=True):
        print(f"  {env_id:<16}" + "".join(f"{f'{mean:.2f} +- {error:.2f}':>20}" for mean, error in cells))
    print(f"learnt in {model.num_timesteps:,} env steps, {minutes:.1f} minutes{ending}")
    print(f"checkpoint  {checkpoint}")


def parse_arguments(argv):
    options = lmpolicy.ScriptOptions(__doc__, output="runs/many_envs", steps=STEPS * len(ENVS), episodes=20)
    return options.read(argv)


if __name__ == "__main__":
    main()

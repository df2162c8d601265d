"""Learn to cross a frozen lake from sentences: PPO of Stable-Baselines3 with a small language model as the policy.

    python examples/frozen_lake.py

Walks at random, with the untrained model and with the trained model. Prints how often each arrives, and where the
trained model goes on each tile. Writes the checkpoint to a new folder in runs/frozen_lake. Ctrl-C ends the training
early. With --resume runs/frozen_lake/1 and otherwise the same arguments, a run that was stopped goes on.
"""

import time

import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import ProgressBarCallback
from stable_baselines3.common.evaluation import evaluate_policy

import lmpolicy
from lmpolicy import LMActorCriticPolicy, TextObservationWrapper

ENV_ID = "FrozenLake-v1"
SETTINGS = lmpolicy.hyperparameters(ENV_ID, is_slippery=False)
"""Settings that were found by experiment. ``print(SETTINGS)`` shows them."""


def main(argv=None):
    args = parse_arguments(argv)
    run = args.resume or lmpolicy.new_run(args.output)

    callbacks = [*SETTINGS.callbacks(), lmpolicy.Checkpoints(run)]
    train_env = SETTINGS.make_env(args.seed)
    eval_env = SETTINGS.make_env(args.seed + 1000, n_envs=20, training=False)
    arguments = SETTINGS.ppo
    arguments["policy_kwargs"]["model"] = args.model
    try:
        if args.resume:
            model = lmpolicy.resume(run, train_env, callbacks, device=args.device)
        else:
            model = PPO(LMActorCriticPolicy, train_env, device=args.device, seed=args.seed, **arguments)
    except OSError as error:  # no such language model
        raise SystemExit(str(error)) from None

    def evaluate(policy):
        returns, _ = evaluate_policy(policy, eval_env, args.episodes, return_episode_rewards=True)
        return np.mean(returns), np.std(returns) / len(returns) ** 0.5

    scores = {"random": evaluate(lmpolicy.RandomPlay(eval_env, args.seed))}
    if not args.resume:
        scores["before training"] = evaluate(model)

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
    scores["after training"] = evaluate(model)
    show_way(model)
    print(f"\n{ENV_ID}: mean return of {args.episodes} episodes (the best possible is 1: always at the goal)")
    for name, (mean, error) in scores.items():
        print(f"  {name:<16}{mean:7.2f} +- {error:.2f}")
    print(f"learnt in {model.num_timesteps:,} env steps, {minutes:.1f} minutes{ending}")
    print(f"checkpoint  {checkpoint}")


def show_way(model):
    """Print the lake with the direction that the model takes on each cell."""
    env = TextObservationWrapper(gym.make(ENV_ID, is_slippery=False))
    tiles = env.unwrapped.desc.astype(str)
    rows = np.stack([env.encode(cell) for cell in range(tiles.size)])
    actions, _ = model.predict(rows, deterministic=True)
    arrows = np.array(["<", "v", ">", "^"])[actions].reshape(tiles.shape)
    print("\nWhere the trained model goes (H: hole, G: goal; it starts at the top left).")
    for line in np.where(np.isin(tiles, ["H", "G"]), tiles, arrows):
        print("  " + " ".join(line))


def parse_arguments(argv):
    options = lmpolicy.ScriptOptions(__doc__, output="runs/frozen_lake", steps=SETTINGS.total_timesteps, episodes=100)
    return options.read(argv)


if __name__ == "__main__":
    main()

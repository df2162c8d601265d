"""Show a language model the way over a frozen lake, and let PPO of Stable-Baselines3 go on from there.

    python examples/warm_start.py
    python examples/warm_start.py --play                        # you are the expert, at the terminal
    python examples/warm_start.py --demonstrations walks.jsonl  # or a file with a turn on each line

A scripted expert walks a few times. The model clones what it did: behaviour cloning of the actor, returns for the
critic. Then it learns by itself, in small steps and held by a reference, so that it does not forget the way. Prints how
often the untrained, the cloned and the trained model arrive. Writes demonstrations and checkpoint to a new folder in
runs/warm_start. Ctrl-C ends the training early. With --resume runs/warm_start/1 and otherwise the same arguments, a run
that was stopped goes on.
"""

import time
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import ProgressBarCallback
from stable_baselines3.common.evaluation import evaluate_policy

import lmpolicy
from lmpolicy import Demonstrations, LMActorCriticPolicy, TextObservationWrapper

ENV_ID = "FrozenLake-v1"
NAMED = lmpolicy.hyperparameters(ENV_ID, is_slippery=False)
"""Settings that were found by experiment, for a training from scratch. ``print(NAMED)`` shows them."""
SETTINGS = replace(NAMED.after_warm_start(), total_timesteps=8_192)
"""Settings after a warm start: small steps, no bonus for trying other things, a critic that learns first, and a
reference that holds the policy near what it has cloned."""
GAMES = 20
"""Number of episodes that the expert plays."""
WAY = {0: "move down", 4: "move down", 8: "move right", 9: "move down", 13: "move right", 14: "move right"}
"""What the expert does on each tile of its way."""


def demonstrate(args):
    """Return what the model is to clone."""
    env = TextObservationWrapper(gym.make(ENV_ID, is_slippery=False))
    if args.demonstrations is not None:
        return Demonstrations.from_jsonl(args.demonstrations, env)
    if args.play:
        return Demonstrations.from_player(env, lmpolicy.play_in_terminal, GAMES, seed=args.seed)
    return Demonstrations.from_player(env, lambda prompt, info: WAY[env.unwrapped.s], GAMES, seed=args.seed)


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
        scores["after cloning"] = clone(model, args, run, evaluate)

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
    print(f"\n{ENV_ID}: mean return of {args.episodes} episodes (the best possible is 1: always at the goal)")
    for name, (mean, error) in scores.items():
        print(f"  {name:<16}{mean:7.2f} +- {error:.2f}")
    print(f"learnt in {model.num_timesteps:,} env steps, {minutes:.1f} minutes{ending}")
    print(f"checkpoint  {checkpoint}")


def clone(model, args, run, evaluate):
    """Let the model learn from demonstrations, and evaluate it."""
    try:
        played = demonstrate(args)
        print(f"Learning from {played!r}, kept in {played.save(run / 'demonstrations.jsonl')}")
        few = len(played.episodes) < 2
        # The rate is that of a training from scratch: there is nothing to forget yet.
        rate = NAMED.learning_rate[0]
        result = lmpolicy.warm_start(model, played, learning_rate=rate, validation=0.0 if few else 0.1, seed=args.seed)
    except (OSError, ValueError) as error:
        raise SystemExit(str(error)) from None
    accuracy = result.best["accuracy"]
    print(f"Cloned in {result.best_epoch} epochs; the most likely action is the expert's in {accuracy:.0%} of turns.")
    return evaluate(model)


def parse_arguments(argv):
    options = lmpolicy.ScriptOptions(__doc__, output="runs/warm_start", steps=SETTINGS.total_timesteps, episodes=100)
    options.add_argument("--play", action="store_true", help="play the episodes yourself, at the terminal")
    options.add_argument("--demonstrations", type=Path, metavar="FILE", help="learn from this file of turns (jsonl)")
    return options.read(argv)


if __name__ == "__main__":
    main()

"""Learn to play text adventures: PPO of Stable-Baselines3 with a small language model as the policy.

    python examples/text_world.py

Makes games of TextWorld, where a coin lies at the end of a chain of rooms, and trains on them. Prints how often random
commands, the untrained model and the trained model win these games, and how often the trained model wins games that it
was not trained on. Then plays one of those, in words. Needs ``pip install "lmpolicy[textworld]"``. Writes the
checkpoint to runs/text_world. Ctrl-C ends the training early. With --resume runs/text_world/1 and otherwise the same
arguments, a run that was stopped goes on.
"""

import time
from dataclasses import replace

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import ProgressBarCallback
from stable_baselines3.common.evaluation import evaluate_policy
from transformers import AutoConfig

import lmpolicy
from lmpolicy import LMActorCriticPolicy, models
from lmpolicy.envs import TEXT_WORLD

SETTINGS = lmpolicy.hyperparameters(TEXT_WORLD, challenge="coin_collector")
"""Settings that were found by experiment. ``print(SETTINGS)`` shows them."""
GAMES, TEST_GAMES = 100, 20
"""Number of games to train on, and of other games to be tested on."""


def main(argv=None):
    args = parse_arguments(argv)
    run = args.resume or lmpolicy.new_run(args.output)
    games = {**SETTINGS.env_kwargs, "level": args.level, "games": args.games}
    settings = replace(SETTINGS, env_kwargs=games)
    others = replace(SETTINGS, env_kwargs={**games, "split": "test", "games": args.test_games})
    arguments = settings.ppo
    if args.model is not None:
        arguments["policy_kwargs"]["model"] = args.model
    callbacks = [*settings.callbacks(), lmpolicy.Checkpoints(run)]
    try:
        AutoConfig.from_pretrained(models.resolve(args.model))  # finds a wrong name before games are made for minutes
        # In training, a new room is worth a point, too. In evaluation, only the coin is.
        train_env = settings.make_env(args.seed)
        eval_env = settings.make_env(args.seed + 1000, n_envs=10, training=False)
        other_env = others.make_env(args.seed + 2000, n_envs=10, training=False)
        if args.resume:
            model = lmpolicy.resume(run, train_env, callbacks, device=args.device)
        else:
            model = PPO(LMActorCriticPolicy, train_env, device=args.device, seed=args.seed, **arguments)
    except (ImportError, OSError, ValueError) as error:  # no textworld; no such language model; no such level
        raise SystemExit(str(error)) from None

    def evaluate(policy, env=eval_env):
        returns, _ = evaluate_policy(policy, env, args.episodes, return_episode_rewards=True)
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
    unseen, unseen_error = evaluate(model, other_env)
    show_game(model, others.make_env(args.seed + 3000, n_envs=1, training=False))
    print(f"\nCoin collector, level {args.level}: share of {args.episodes} plays of {args.games} games that were won")
    for name, (mean, error) in scores.items():
        print(f"  {name:<16}{mean:7.2f} +- {error:.2f}")
    print(f"and of {args.test_games} games that it was not trained on: {unseen:.2f} +- {unseen_error:.2f}")
    print(f"learnt in {model.num_timesteps:,} env steps, {minutes:.1f} minutes{ending}")
    print(f"checkpoint  {checkpoint}")


def show_game(model, env):
    """Print a game that the model plays."""
    row, over, step = env.reset(), False, 0
    print(f"\n{env.get_attr('prompt')[0].messages[-1][1]}")
    while not over:
        action, _ = model.predict(row, deterministic=True)
        step += 1
        row, _, done, infos = env.step(action)
        over = done[0]
        print(f"> {infos[0]['action_text']}")
        if not over:
            print(env.get_attr("prompt")[0].messages[-1][1].partition("Room: ")[2])
    print(f"*** {'won' if infos[0]['won'] else 'not won'} after {step} commands ***")


def parse_arguments(argv):
    options = lmpolicy.ScriptOptions(__doc__, output="runs/text_world", steps=SETTINGS.total_timesteps, episodes=50)
    options.add_argument("--level", type=int, default=5, help="rooms from the start to the coin")
    options.add_argument("--games", type=int, default=GAMES, help="games to train on")
    options.add_argument("--test-games", type=int, default=TEST_GAMES, help="other games, to be tested on")
    return options.read(argv)


if __name__ == "__main__":
    main()

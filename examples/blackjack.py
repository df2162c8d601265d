"""Learn when to stick and when to hit from sentences: PPO of Stable-Baselines3 with a small language model.

    python examples/blackjack.py
    python examples/blackjack.py --generate   # the model writes its answers in free text

Plays blackjack at random, with the untrained model and with the trained model. Prints what each wins per round, and
what the trained model does with each hand. Writes the checkpoint to a new folder in runs/blackjack. Ctrl-C ends the
training early. With --resume runs/blackjack/1 and otherwise the same arguments, a run that was stopped goes on.
"""

import time

import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import ProgressBarCallback
from stable_baselines3.common.evaluation import evaluate_policy

import lmpolicy
from lmpolicy import LMActorCriticPolicy, TextObservationWrapper

ENV_ID = "Blackjack-v1"
SETTINGS = lmpolicy.hyperparameters(ENV_ID)
"""Settings that were found by experiment. ``print(SETTINGS)`` shows them."""


def main(argv=None):
    args = parse_arguments(argv)
    run = args.resume or lmpolicy.new_run(args.output)

    settings, writing = SETTINGS, {}
    if args.generate:
        settings = SETTINGS.for_free_text()
        writing = {"action_mode": "generate", "tokenizer": args.model, "max_new_tokens": args.generate}
    arguments = settings.ppo
    arguments["policy_kwargs"] |= {"model": args.model, "ratio_level": "sum"}  # of answers as short as these
    callbacks = [*settings.callbacks(), lmpolicy.Checkpoints(run)]
    try:
        train_env = settings.make_env(args.seed, **writing)
        eval_env = settings.make_env(args.seed + 1000, n_envs=50, training=False, **writing)
        random_env = settings.make_env(args.seed + 1000, n_envs=50, training=False)
        if args.resume:
            model = lmpolicy.resume(run, train_env, callbacks, device=args.device)
        else:
            model = PPO(LMActorCriticPolicy, train_env, device=args.device, seed=args.seed, **arguments)
    except OSError as error:  # no such language model
        raise SystemExit(str(error)) from None

    def evaluate(policy, env=eval_env):
        returns, _ = evaluate_policy(policy, env, args.episodes, return_episode_rewards=True)
        return np.mean(returns), np.std(returns) / len(returns) ** 0.5

    scores = {"random": evaluate(lmpolicy.RandomPlay(random_env, args.seed), random_env)}
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
    show_decisions(model, writing)
    print(f"\n{ENV_ID}: mean return of {args.episodes} episodes (the best possible is about -0.05: the house wins)")
    for name, (mean, error) in scores.items():
        print(f"  {name:<16}{mean:7.2f} +- {error:.2f}")
    print(f"learnt in {model.num_timesteps:,} env steps, {minutes:.1f} minutes{ending}")
    print(f"checkpoint  {checkpoint}")


def show_decisions(model, writing):
    """Print what the model does with each total, without an ace that counts 11, against each card of the dealer."""
    env = TextObservationWrapper(gym.make(ENV_ID), **writing)
    env.reset(seed=0)
    totals, cards = range(20, 10, -1), range(1, 11)
    rows = np.stack([env.encode((total, card, 0)) for total in totals for card in cards])
    actions, _ = model.predict(rows, deterministic=True)
    answers = [env.read_answer(action) for action in actions]
    letters = np.array(["?" if answer.parse_error else "SH"[answer.action] for answer in answers])
    print("\nWhat the trained model does (S: stick, H: hit), with no usable ace.")
    if writing:
        print(f"It says, for example: {answers[0].text!r}")
    print("dealer shows   " + "  ".join(f"{'A' if card == 1 else card:>2}" for card in cards))
    for total, line in zip(totals, letters.reshape(len(totals), len(cards)), strict=True):
        print(f"your total {total}   " + "   ".join(line))


def parse_arguments(argv):
    options = lmpolicy.ScriptOptions(__doc__, output="runs/blackjack", steps=SETTINGS.total_timesteps, episodes=1000)
    options.add_argument(
        "--generate",
        nargs="?",
        type=int,
        const=16,
        metavar="N",
        help="let the model write its answers, of up to N tokens (16 unless said), instead of choosing among phrases",
    )
    return options.read(argv)


if __name__ == "__main__":
    main()

"""Learn to balance a pole from sentences: PPO of Stable-Baselines3, with a small language model as the policy.

    python examples/cartpole.py
    python examples/cartpole.py --generate   # the model writes its answers in free text; slower

Plays CartPole at random, with the untrained model and with the trained model. Prints the three returns, draws the
learning curve, shows one episode in words, and writes a page to look at what it did and does. Its files are in a new
folder in runs/cartpole. Ctrl-C ends the training early. With --resume runs/cartpole/1 and otherwise the same
arguments, a run that was stopped goes on.
"""

import time

import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, ProgressBarCallback
from stable_baselines3.common.evaluation import evaluate_policy

import lmpolicy
from lmpolicy import LMActorCriticPolicy, TextObservationWrapper, WatchLearning
from lmpolicy.files import whole_file

ENV_ID = "CartPole-v1"
BEST = 500
"""The return of a pole that never falls."""

SETTINGS = lmpolicy.hyperparameters(ENV_ID)
"""Settings that were found by experiment. ``print(SETTINGS)`` shows them."""


class LearningCurve(BaseCallback):
    """Keep the return of every training episode, and evaluate the model now and then.

    :param evaluate: takes a model, and returns its mean return and the standard error.
    :param every: number of env steps between two evaluations.
    """

    def __init__(self, evaluate, every):
        super().__init__()
        self.evaluate, self.every = evaluate, every
        self.episodes, self.evaluations = [], []  # (env step, return)

    def _on_step(self):
        returns = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        self.episodes += [(self.num_timesteps, value) for value in returns]
        return True

    def state_dict(self):
        return {"episodes": self.episodes, "evaluations": self.evaluations}

    def load_state_dict(self, state):
        self.episodes, self.evaluations = state["episodes"], state["evaluations"]

    def _on_rollout_start(self):
        if self.num_timesteps >= self.every * len(self.evaluations):
            mean, _ = self.evaluate(self.model)
            self.evaluations.append((self.num_timesteps, mean))
            print(f"{self.num_timesteps:8,} env steps: mean return {mean:.1f} in evaluation")


def main(argv=None):
    args = parse_arguments(argv)
    run = args.resume or lmpolicy.new_run(args.output)

    settings, writing = SETTINGS, {}
    if args.generate:
        settings = SETTINGS.for_free_text()
        writing = {"action_mode": "generate", "tokenizer": args.model, "max_new_tokens": args.generate}
    arguments = settings.ppo
    arguments["policy_kwargs"] |= {"model": args.model, "ratio_level": "sum"}  # of answers as short as these
    curve = LearningCurve(lambda policy: evaluate(policy), every=args.steps // 10)
    callbacks = [curve, WatchLearning(every=2), *settings.callbacks(), lmpolicy.Checkpoints(run)]
    try:
        # Eight envs side by side. Rewards are scaled for the critic; observations are text and stay as they are.
        train_env = settings.make_env(args.seed, **writing)
        eval_env = settings.make_env(args.seed + 1000, n_envs=10, training=False, **writing)
        random_env = settings.make_env(args.seed + 1000, n_envs=10, training=False)
        if args.resume:
            model = lmpolicy.resume(run, train_env, callbacks, device=args.device)
        else:
            model = PPO(
                LMActorCriticPolicy,
                train_env,
                device=args.device,
                seed=args.seed,
                tensorboard_log=run / "tensorboard",
                **arguments,
            )
    except OSError as error:  # no such language model
        raise SystemExit(str(error)) from None

    def evaluate(policy, env=eval_env):
        returns, _ = evaluate_policy(policy, env, args.episodes, return_episode_rewards=True)
        return np.mean(returns), np.std(returns) / len(returns) ** 0.5

    scores = {"random": evaluate(lmpolicy.RandomPlay(random_env, args.seed), random_env)}
    if not args.resume:
        scores["before training"] = evaluate(model)
        curve.evaluations.append((0, scores["before training"][0]))

    # Train.
    left = max(0, args.steps - model.num_timesteps)
    print(f"Training for {left:,} env steps on {model.device}; Ctrl-C stops early and keeps what was learnt.")
    start, bar = time.perf_counter(), ProgressBarCallback()
    try:
        model.learn(left, callback=[bar, *callbacks], reset_num_timesteps=args.resume is None)
        ending = ""
    except KeyboardInterrupt:
        bar.on_training_end()
        ending = " (stopped early by Ctrl-C)"
    minutes = (time.perf_counter() - start) / 60

    # Keep and show the results.
    checkpoint = lmpolicy.save(model, run / "model")
    scores["after training"] = evaluate(model)
    evaluations = [*curve.evaluations, (model.num_timesteps, scores["after training"][0])]
    draw_learning_curve(run / "learning_curve.png", curve.episodes, evaluations, scores["random"][0])
    env = TextObservationWrapper(gym.make(ENV_ID, render_mode="rgb_array"), **writing)  # with pictures for the report
    played = lmpolicy.record_episodes(model, env, 1, run, seed=args.seed)
    show_episode(env, played[0])
    report = lmpolicy.write_report(run, title=f"{ENV_ID}, {run}")
    print(f"\n{ENV_ID}: mean return of {args.episodes} episodes (the best possible is {BEST})")
    for name, (mean, error) in scores.items():
        print(f"  {name:<16}{mean:6.1f} +- {error:.1f}")
    print(f"learnt in {model.num_timesteps:,} env steps, {minutes:.1f} minutes{ending}")
    print(f"checkpoint      {checkpoint}\nlearning curve  {run / 'learning_curve.png'}")
    print(f"what it did     tensorboard --logdir {run / 'tensorboard'}, and turns.jsonl in there")
    print(f"look at it      {report}")


def draw_learning_curve(path, episodes, evaluations, random_return, window=20):
    import matplotlib

    matplotlib.use("Agg")  # draw to a file; no window is needed
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    if episodes:
        steps, returns = np.transpose(episodes)
        axes.plot(steps, returns, ".", color="0.75", markersize=4, label="training episode")
        if len(returns) >= window:
            mean = np.convolve(returns, np.full(window, 1 / window), mode="valid")
            axes.plot(steps[window - 1 :], mean, color="tab:blue", label=f"mean of {window} training episodes")
    axes.plot(*np.transpose(evaluations), "o-", color="tab:orange", label="evaluation, most likely action")
    axes.axhline(random_return, color="tab:red", linestyle="--", label="random actions")
    axes.axhline(BEST, color="0.4", linestyle=":", label="best possible")
    axes.set(
        xlabel="env steps", ylabel="return per episode", title=f"{ENV_ID}, PPO with a language model", ylim=(0, None)
    )
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    with whole_file(path) as file:
        figure.savefig(file, format="png", dpi=120)
    plt.close(figure)


def show_episode(env, turns, first=8, last=3):
    """Print one episode as the model reads it, with the probability it gives to each action, or with its answers."""
    print(f"\nOne episode of the trained model.\n{turns[0].messages[0]['content']}")
    for number, turn in enumerate(turns, start=1):
        if number <= first or number > len(turns) - last:
            shares = " | ".join(f"{phrase} {share:.2f}" for phrase, share in turn.probabilities.items())
            said = shares if turn.answer is None else repr(turn.answer)
            print(f"{number:4}  {turn.messages[-1]['content']}\n      {said} -> {turn.action}")
        elif number == first + 1:
            print("      ...")
    if turns[-1].truncated:
        print("      The pole still stands: the time is up.")
    elif abs(env.unwrapped.state[0]) > env.unwrapped.x_threshold:
        print("      The cart left the track.")
    else:
        print("      The pole fell.")


def parse_arguments(argv):
    options = lmpolicy.ScriptOptions(
        __doc__,
        output="runs/cartpole",
        steps=SETTINGS.total_timesteps,
        episodes=20,
        needs=("matplotlib", "rich", "tqdm"),
    )
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

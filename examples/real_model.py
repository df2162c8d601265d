"""Fine-tune a real language model on a laptop: SmolLM2-135M-Instruct learns to cross a frozen lake, by PPO.

    make real                                      # sets up everything, and runs this file
    python examples/real_model.py
    python examples/real_model.py --env Blackjack-v1
    python examples/real_model.py --generate       # the model writes its answers in free text; slower

Plays at random, with the untrained model and with the trained model: with its most likely actions, and with actions
sampled from its probabilities. Prints the returns and an episode in words. Writes the checkpoint to a new folder in
runs/real_model. Ctrl-C ends the training early. With --resume runs/real_model/1 and otherwise the same arguments, a run
that was stopped goes on.
"""

import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, ProgressBarCallback
from stable_baselines3.common.evaluation import evaluate_policy

import lmpolicy
from lmpolicy import LMActorCriticPolicy

ENV_ID = "FrozenLake-v1"
MODEL = "smollm2-135m-instruct"
STEPS = 4096
SETTINGS = lmpolicy.hyperparameters(ENV_ID, is_slippery=False)
"""Settings that were found by experiment. ``print(SETTINGS)`` shows them."""


class Report(BaseCallback):
    """Print a line after each rollout and after each update."""

    def _on_training_start(self):
        self.start = time.perf_counter()

    def _on_rollout_start(self):
        if self.num_timesteps:
            self._tell("learnt from them")

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        returns = [episode["r"] for episode in self.model.ep_info_buffer]
        mean = (
            f"mean return {np.mean(returns):.2f} in the last {len(returns)} episodes" if returns else "no episode yet"
        )
        self._tell(mean)

    def _tell(self, what):
        print(f"{(time.perf_counter() - self.start) / 60:6.1f} min {self.num_timesteps:8,} env steps: {what}")


def main(argv=None):
    args = parse_arguments(argv)
    # The settings of the env, with those of the model in place of the bundled one's.
    writing = {}
    try:
        settings = (SETTINGS if args.env == ENV_ID else lmpolicy.hyperparameters(args.env)).for_model(args.model)
        if args.generate:
            settings = settings.for_free_text()
            writing = {"action_mode": "generate", "tokenizer": args.model, "max_new_tokens": args.generate}
        train_env = settings.make_env(args.seed, **writing)
        eval_env = settings.make_env(args.seed + 1000, n_envs=10, training=False, **writing)
        random_env = settings.make_env(args.seed + 1000, n_envs=10, training=False)
        run = args.resume or lmpolicy.new_run(args.output)
        callbacks = [Report(), *settings.callbacks(), lmpolicy.Checkpoints(run)]
        if args.resume:
            model = lmpolicy.resume(run, train_env, callbacks, device=args.device)
        else:
            model = PPO(LMActorCriticPolicy, train_env, device=args.device, seed=args.seed, **settings.ppo)
    except (ImportError, OSError, gym.error.Error) as error:  # no such language model; no such env, or no package
        raise SystemExit(str(error)) from None

    def evaluate(policy, env=eval_env, sampled=False):
        returns, _ = evaluate_policy(policy, env, args.episodes, deterministic=not sampled, return_episode_rewards=True)
        return np.mean(returns), np.std(returns) / len(returns) ** 0.5

    scores = {"random": evaluate(lmpolicy.RandomPlay(random_env, args.seed), random_env)}
    if not args.resume:
        scores["before training"] = evaluate(model)
        scores["before training, sampled"] = evaluate(model, sampled=True)
    show_scores(args, scores)

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
    scores["after training, sampled"] = evaluate(model, sampled=True)
    show_episode(model, settings.make_env(args.seed + 2000, n_envs=1, training=False, **writing))
    show_scores(args, scores)
    print(f"learnt in {model.num_timesteps:,} env steps, {minutes:.1f} minutes{ending}")
    print(f"checkpoint  {checkpoint}")


def show_scores(args, scores):
    """Print the returns so far."""
    print(f"\n{args.env}, {args.model}: mean return of {args.episodes} episodes, by the most likely action or sampled")
    for name, (mean, error) in scores.items():
        print(f"  {name:<26}{mean:8.2f} +- {error:.2f}")


def show_episode(model, env, longest=20):
    """Print an episode as the model reads it, with the probability it gives to each action, or with its answers."""
    rows, done, step = env.reset(), False, 0
    (prompt,) = env.get_attr("prompt")
    print("\nAn episode of the trained model.")
    if len(prompt.messages) > 1:
        print(prompt.messages[0][1])
    while not done and step < longest:
        (prompt,) = env.get_attr("prompt")
        actions, _ = model.predict(rows, deterministic=True)
        said = None if isinstance(env.action_space, lmpolicy.TokenSpace) else probabilities(model, prompt, rows)
        rows, _, (done,), (info,) = env.step(actions)
        step += 1
        said = repr(info["answer"]) if said is None else said
        print(f"{step:4}  {prompt.messages[-1][1]}\n      {said} -> {info.get('action_text')}")
    print(f"      The episode ends with a return of {info['episode']['r']:g}." if done else "      ...")


def probabilities(model, prompt, rows):
    """How likely the model is to take each action, in words."""
    with torch.no_grad():
        tensor, _ = model.policy.obs_to_tensor(rows)
        shares = model.policy.get_distribution(tensor).distribution.probs[0].tolist()
    return " | ".join(f"{phrase} {share:.2f}" for phrase, share in zip(prompt.actions, shares, strict=False))


def parse_arguments(argv):
    options = lmpolicy.ScriptOptions(__doc__, output="runs/real_model", steps=STEPS, episodes=40)
    options.add_argument("--env", default=ENV_ID, help="id of a Gymnasium env; the lake is not slippery")
    options.add_argument(
        "--generate",
        nargs="?",
        type=int,
        const=16,
        metavar="N",
        help="let the model write its answers, of up to N tokens (16 unless said), instead of choosing among phrases",
    )
    options.set_defaults(model=MODEL)
    return options.read(argv)


if __name__ == "__main__":
    main()

"""Your own environment in your own words: a thermostat, trained with PPO of Stable-Baselines3.

    python examples/custom_task.py

Copy this file, put your environment and its words where the thermostat is, and train. Prints the return of random play,
of the untrained model and of the trained model. Writes the checkpoint to a new folder in runs/custom_task. Ctrl-C ends
the training early. With --resume runs/custom_task/1 and otherwise the same arguments, a run that was stopped goes on.
"""

import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import ProgressBarCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import lmpolicy
from lmpolicy import LMActorCriticPolicy, TextObservationWrapper, TextTask


class Thermostat(gym.Env):
    """A room that cools down by itself; one point for every minute between 20 and 22 degrees, for 40 minutes."""

    observation_space = gym.spaces.Box(-50.0, 50.0, shape=(1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.temperature, self.minutes = self.np_random.uniform(14, 28), 0
        return self._observation(), {}

    def step(self, action):
        self.temperature += 0.05 * (5 - self.temperature) + 1.6 * action  # it is 5 degrees outside
        self.minutes += 1
        return self._observation(), float(20 <= self.temperature <= 22), False, self.minutes == 40, {}

    def _observation(self):
        return np.array([self.temperature], dtype=np.float32)


class ThermostatTask(TextTask):
    """How the room reads as text."""

    system_prompt = "You heat a room. Keep it between 20 and 22 degrees. Without heating, it becomes colder."
    action_texts = ("wait", "heat")

    def format_observation(self, observation):
        return f"The room has {observation[0]:.1f} degrees."


def make_env():
    return TextObservationWrapper(Thermostat(), ThermostatTask())


HYPERPARAMETERS = {
    "n_steps": 40,
    "batch_size": 320,
    "n_epochs": 5,
    "gamma": 0.95,
    "gae_lambda": 0.95,
    "learning_rate": 5e-4,
    "ent_coef": 0.05,
}


def main(argv=None):
    args = parse_arguments(argv)
    run = args.resume or lmpolicy.new_run(args.output)

    callbacks = [lmpolicy.Checkpoints(run)]
    train_env = make_vec_env(make_env, n_envs=8, seed=args.seed)
    eval_env = make_vec_env(make_env, n_envs=20, seed=args.seed + 1000)
    try:
        if args.resume:
            model = lmpolicy.resume(run, train_env, callbacks, device=args.device)
        else:
            model = PPO(
                LMActorCriticPolicy,
                train_env,
                policy_kwargs={"model": args.model},
                device=args.device,
                seed=args.seed,
                **HYPERPARAMETERS,
            )
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
    show_answers(model)
    print(f"\nThermostat: mean return of {args.episodes} episodes (40 minutes; the best possible is about 38)")
    for name, (mean, error) in scores.items():
        print(f"  {name:<16}{mean:7.2f} +- {error:.2f}")
    print(f"learnt in {model.num_timesteps:,} env steps, {minutes:.1f} minutes{ending}")
    print(f"checkpoint  {checkpoint}")


def show_answers(model):
    """Print how likely the model is to heat at some temperatures."""
    env = make_env()
    print("\nWhat the trained model does.")
    for temperature in (15, 18, 20, 20.5, 21, 21.5, 22, 24, 27):
        row, _ = model.policy.obs_to_tensor(env.encode([temperature]))
        with torch.no_grad():
            wait, heat = model.policy.get_distribution(row).distribution.probs[0]
        print(f"  {env.task.format_observation([temperature]):<28} wait {wait:.2f} | heat {heat:.2f}")


def parse_arguments(argv):
    options = lmpolicy.ScriptOptions(__doc__, output="runs/custom_task", steps=20_000, episodes=100)
    return options.read(argv)


if __name__ == "__main__":
    main()

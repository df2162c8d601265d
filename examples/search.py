"""Search for settings with Optuna: how fast to learn, how much to explore, how strongly the adapter acts.

    python examples/search.py

Each trial trains PPO of Stable-Baselines3 with settings that Optuna proposes, and is evaluated on the way. A trial that
is behind the others is given up early. All trials are kept in runs/search/study.db: the same command goes on after
Ctrl-C, and further processes that are started with it share the work. At the end, the best settings are printed as
Python. Expect half an hour for 20 trials on one CPU thread.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy

import lmpolicy
from lmpolicy import LMActorCriticPolicy

EVALUATIONS = 5
"""Number of evaluations in a trial; the trial may be given up after each but the last."""


def proposed(trial):
    """Return what a trial changes in the named settings. To search for other things, change this function."""
    return {
        "learning_rate": (trial.suggest_float("learning_rate", 5e-5, 2e-3, log=True), 0.0),
        "ent_coef": (trial.suggest_float("ent_coef", 1e-3, 1e-1, log=True), 0.0),
        "normalize_advantage": trial.suggest_categorical("normalize_advantage", [True, False]),
        "lora": {"r": 16, "lora_alpha": trial.suggest_categorical("lora_alpha", [32, 64, 128])},
    }


class Judge(BaseCallback):
    """Evaluate the policy a few times, tell Optuna, and end the training if the trial is behind the others."""

    def __init__(self, trial, evaluate, steps):
        super().__init__()
        self.trial, self.evaluate, self.every = trial, evaluate, max(1, steps // EVALUATIONS)
        self.told, self.is_behind = 0, False

    def _on_rollout_start(self):
        """Evaluate between an update and the next rollout."""
        place = self.num_timesteps // self.every
        if place > self.told:
            self.told = place
            self.trial.report(self.evaluate(self.model), place)
            self.is_behind = self.trial.should_prune()

    def _on_step(self):
        return not self.is_behind


def main(argv=None):
    args, optuna = parse_arguments(argv)
    settings = named_settings(args.env)
    eval_env = settings.make_env(args.seed + 1000, n_envs=10, training=False)

    def evaluate(model):
        returns, _ = evaluate_policy(model, eval_env, args.episodes, return_episode_rewards=True)
        return float(np.mean(returns))

    def objective(trial):
        tried = replace(settings, **proposed(trial))
        train_env = tried.make_env(args.seed)
        model = PPO(LMActorCriticPolicy, train_env, device=args.device, seed=args.seed, **tried.ppo)
        judge = Judge(trial, evaluate, args.steps)
        model.learn(args.steps, callback=[judge, *tried.callbacks()])
        if judge.is_behind:
            raise optuna.TrialPruned
        return evaluate(model)

    args.output.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name=f"{args.env}, {args.steps} env steps",
        storage=f"sqlite:///{args.output / 'study.db'}",
        load_if_exists=True,  # goes on with the trials that are there
        direction="maximize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=1),
    )
    # A search that goes on, or a second process, must not draw the same proposals once more.
    study.sampler = optuna.samplers.TPESampler(seed=args.seed + len(study.trials))
    finished = [trial for trial in study.trials if trial.state.is_finished()]
    print(f"{args.env}: {len(finished)} of {args.trials} trials are done; the others are written to {args.output}.")
    try:
        # Settings under which a number overflows are no reason to end the search.
        study.optimize(objective, max(0, args.trials - len(finished)), catch=lmpolicy.NonFiniteError)
    except KeyboardInterrupt:
        print("stopped early by Ctrl-C; the same command goes on")
    show(args.env, study, optuna)


def show(env_id, study, optuna):
    """Print all trials, and the best one as Python."""
    complete = optuna.trial.TrialState.COMPLETE
    print(f"\n{'trial':>5} {'return':>9}  settings")
    for trial in study.trials:
        value = f"{trial.value:9.2f}" if trial.state == complete else f"{trial.state.name.lower():>9}"
        shown = (f"{setting:.4g}" if isinstance(setting, float) else str(setting) for setting in trial.params.values())
        print(f"{trial.number:>5} {value}  {', '.join(map(' '.join, zip(trial.params, shown, strict=True)))}")
    if not any(trial.state == complete for trial in study.trials):
        return
    best = ", ".join(
        f"{name}={value!r}" for name, value in proposed(optuna.trial.FixedTrial(study.best_params)).items()
    )
    print(f"\nbest, mean return {study.best_value:.2f}:")
    print(f"settings = dataclasses.replace(lmpolicy.hyperparameters({env_id!r}), {best})")
    print(
        "It is the best of many with one seed: before you believe it, train it with seeds that the search has not seen."
    )


def named_settings(env_id):
    try:
        return lmpolicy.hyperparameters(env_id)
    except gym.error.Error as error:  # no such env
        raise SystemExit(str(error)) from None


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--env", default="CartPole-v1", help="id of a Gymnasium env")
    parser.add_argument("--trials", type=int, default=20, help="number of trials in all, with those of earlier runs")
    parser.add_argument("--steps", type=int, default=8192, help="env steps of a trial")
    parser.add_argument("--episodes", type=int, default=20, help="episodes per evaluation")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    parser.add_argument("--seed", type=int, default=0, help="seed of envs, models and the search")
    parser.add_argument("--output", type=Path, default=Path("runs/search"), help="folder of the study")
    args = parser.parse_args(argv)
    try:
        import optuna
    except ImportError as error:
        raise SystemExit(f'{error}; this example needs: pip install "lmpolicy[search]"') from None
    for name in ("trials", "steps", "episodes"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} is a positive number, got {getattr(args, name)}")
    try:
        lmpolicy.check_device(args.device)
    except ValueError as error:
        parser.error(str(error))
    return args, optuna


if __name__ == "__main__":
    main()

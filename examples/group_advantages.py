"""Learn to balance a pole by comparing episodes, with or without a critic: GRPO, RLOO and others within PPO.

    python examples/group_advantages.py                         # GRPO over groups of 8 episodes from the same start
    python examples/group_advantages.py --method leave-one-out  # returns from the same prompt on, without a critic
    python examples/group_advantages.py --method mixture        # the same, mixed with the critic
    python examples/group_advantages.py --method ppo            # the critic alone, to compare

The agent reads about pole and cart and chooses "push left" or "push right"; the bundled language model is its policy.
The learner is the unmodified PPO of Stable-Baselines3. Only its rollout buffer and, for groups, the seeds of the
episodes differ. Plays at random, with the untrained model and with the trained model, and prints the three returns.
Writes the checkpoint to a new folder in runs/group_advantages. Ctrl-C ends the training early. With
--resume runs/group_advantages/1 and otherwise the same arguments, a run that was stopped goes on.
"""

import time

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, ProgressBarCallback
from stable_baselines3.common.evaluation import evaluate_policy

import lmpolicy
from lmpolicy import EpisodeGroups, GroupAdvantages, LMActorCriticPolicy

ENV_ID = "CartPole-v1"
SETTINGS = lmpolicy.hyperparameters(ENV_ID)
"""Settings that were found by experiment, for PPO with a critic. ``print(SETTINGS)`` shows them."""

GROUPED = ("grpo", "rloo")
"""Methods that compare episodes from the same start."""
METHODS = (*GROUPED, "leave-one-out", "mixture", "ppo")


class TellReturns(BaseCallback):
    """Print the mean return of the episodes that ended in the last env steps."""

    def __init__(self, every):
        super().__init__()
        self.every, self.next, self.returns = every, every, []

    def _on_step(self):
        self.returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        if self.num_timesteps >= self.next:
            mean = f"mean return {np.mean(self.returns):.1f}" if self.returns else "no end yet"
            print(f"{self.num_timesteps:8,} env steps: {mean} in {len(self.returns)} training episodes")
            self.next, self.returns = self.next + self.every, []
        return True

    def state_dict(self):
        return {"next": self.next, "returns": self.returns}

    def load_state_dict(self, state):
        self.next, self.returns = state["next"], state["returns"]


def main(argv=None):
    args = parse_arguments(argv)
    run = args.resume or lmpolicy.new_run(args.output)

    # Eight copies of the env. In a group, each start is played by as many episodes as the group has copies.
    train_env = SETTINGS.make_env(args.seed)
    if args.method in GROUPED:
        train_env = EpisodeGroups(train_env, group_size=args.group_size)
    eval_env = SETTINGS.make_env(args.seed + 1000, n_envs=10, training=False)

    # PPO takes the advantages of its rollout buffer. Without a critic, there is no value loss.
    arguments = SETTINGS.ppo
    arguments["policy_kwargs"]["model"] = args.model
    if args.method != "ppo":
        arguments |= {"rollout_buffer_class": GroupAdvantages, "rollout_buffer_kwargs": {"baseline": args.method}}
    if args.method not in ("ppo", "mixture"):
        arguments["vf_coef"] = 0.0

    callbacks = [*SETTINGS.callbacks(), TellReturns(max(1, args.steps // 10)), lmpolicy.Checkpoints(run)]
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
    print(f"Training by {args.method} for {left:,} env steps on {model.device}; Ctrl-C keeps what was learnt.")
    start, bar, ending = time.perf_counter(), ProgressBarCallback(), ""
    try:
        model.learn(left, callback=[bar, *callbacks], reset_num_timesteps=args.resume is None)
    except KeyboardInterrupt:
        bar.on_training_end()
        ending = " (stopped early by Ctrl-C)"
    minutes = (time.perf_counter() - start) / 60

    checkpoint = lmpolicy.save(model, run / "model")
    scores["after training"] = evaluate(model)
    print(f"\n{ENV_ID}, {args.method}: mean return of {args.episodes} episodes (the best possible is 500)")
    for name, (mean, error) in scores.items():
        print(f"  {name:<16}{mean:6.1f} +- {error:.1f}")
    print(f"learnt in {model.num_timesteps:,} env steps, {minutes:.1f} minutes{ending}")
    print(f"checkpoint  {checkpoint}")


def parse_arguments(argv):
    options = lmpolicy.ScriptOptions(
        __doc__, output="runs/group_advantages", steps=SETTINGS.total_timesteps, episodes=20
    )
    options.add_argument("--method", choices=METHODS, default="grpo")
    options.add_argument("--group-size", type=int, default=8, help="episodes from the same start, for grpo and rloo")
    args = options.read(argv)
    if args.method in GROUPED and (args.group_size < 2 or SETTINGS.n_envs % args.group_size):
        options.error(f"--group-size {args.group_size}: {SETTINGS.n_envs} envs make groups of 2, 4 or 8")
    return args


if __name__ == "__main__":
    main()

"""What a policy in training would do: the probability of each legal phrase, step by step of a few episodes.

    python -m benchmarks.real_models.action_probabilities --task tomato-salad --output probabilities.csv FOLDER

FOLDER has the checkpoints of a training, of which the newest is read: the folder of a run, or that of a cell that is
under way, such as results/real_models/tomato-salad/smollm2-135m-instruct/unfinished/lm-101-29afc4a9. Written is a row
for each phrase that was legal in a step, also of those that were not taken. So a thing that is never done can be told
from one that is done in vain: what has a probability near 0 wherever it is legal is not tried any more.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from stable_baselines3 import PPO

from benchmarks.common.numbers import positive
from benchmarks.learning.tasks import BY_NAME, lm_settings
from lmpolicy import LMActorCriticPolicy
from lmpolicy.files import write_table
from lmpolicy.text.spaces import TextSpace
from lmpolicy.training.checkpoints.checkpoints import MODEL, newest_checkpoint
from lmpolicy.training.deciding import decide

FIELDS = ("env_steps", "episode", "step", "state", "action", "probability", "taken", "reward")
"""``reward`` is that of the step, the same in all rows of it."""
Row = dict[str, str]


def probabilities(model: PPO, task: str, seeds: Sequence[int], sampled: bool) -> Iterator[Row]:
    """Play, and yield a row for each phrase that is legal in a step.

    :param model: learner with a language model that chooses among phrases.
    :param task: name of a task of ``python -m benchmarks.learning``.
    :param seeds: seed of each episode.
    :param sampled: whether actions are sampled. False: the most likely.
    """
    policy = model.policy
    assert isinstance(policy, LMActorCriticPolicy)
    space = policy.observation_space
    assert isinstance(space, TextSpace)
    env = lm_settings(BY_NAME[task]).make_env(seeds[0], 1, training=False)
    try:
        for episode, seed in enumerate(seeds):
            env.seed(seed)
            row, over, step = env.reset(), False, 0
            while not over:
                (decided,) = decide(policy, [space.decode(row[0])], greedy=not sampled)
                row, rewards, dones, _ = env.step([decided.given])
                over = bool(dones[0])
                for action, share in decided.probabilities.items():
                    yield {
                        "env_steps": str(model.num_timesteps),
                        "episode": str(episode),
                        "step": str(step),
                        "state": decided.prompt.messages[-1][1],
                        "action": action,
                        "probability": f"{share:.6f}",
                        "taken": str(int(action == decided.action)),
                        "reward": f"{rewards[0]:.6g}",
                    }
                step += 1
    finally:
        env.close()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder with the checkpoints of a training")
    parser.add_argument("--task", choices=[*BY_NAME], required=True)
    parser.add_argument("--episodes", type=positive, default=8)
    parser.add_argument("--seed", type=int, default=0, help="of the first episode; the others have those after it")
    parser.add_argument("--greedy", action="store_true", help="take the most likely actions instead of sampling")
    parser.add_argument("--output", type=Path, required=True, help="CSV file to write")
    args = parser.parse_args(argv)
    newest = newest_checkpoint(args.folder)
    if newest is None:
        parser.error(f"{args.folder} has no checkpoints")
    model = PPO.load(newest / MODEL, device="cpu")
    seeds = range(args.seed, args.seed + args.episodes)
    write_table(args.output, FIELDS, probabilities(model, args.task, seeds, not args.greedy))
    print(f"{args.output}: {args.episodes} episodes of the policy after {model.num_timesteps:,} env steps")


if __name__ == "__main__":
    main()

"""What 42 legal actions cost that change at every step: PPO's env steps per second, beside prompts x actions.

    python -m benchmarks.legal_actions
    python -m benchmarks.legal_actions --actions 6 42 --repetitions 5

A storeroom shows seven of 48 things at every step, others at the next; each can be handled in six ways, so of 288
phrases of 3 to 8 tokens, 42 are legal. PPO collects a rollout and learns from it (one epoch), once with the scorer,
which runs each prompt once and the phrases behind it as a trie, and once with every phrase behind every prompt in
padded batches; the latter even without values. Log-probabilities are held equal first. Writes
benchmarks/results/legal_actions.csv.
"""

import argparse
import itertools
import os
import time
from pathlib import Path
from statistics import mean, median

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import gymnasium as gym
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from torch.nn.utils.rnn import pad_sequence

from benchmarks.common.paths import RESULTS
from benchmarks.scoring.methods import joint_log_probs
from lmpolicy import LMActorCriticPolicy, Prompt, TextObservationWrapper, TextTask
from lmpolicy.comparison.machine import processor
from lmpolicy.files import write_table
from lmpolicy.lm.phrase_actor import PhraseActor
from lmpolicy.lm.scorer import ILLEGAL
from lmpolicy.text.spaces import decode_bytes, row_keys

THINGS = [
    f"{colour} {kind}"
    for colour, kind in itertools.product(
        ("red", "green", "blue", "purple", "yellow", "grey"),
        ("ball", "box", "key", "door", "chest", "table", "lamp", "coin"),
    )
]
VERBS = ("pick up the", "drop the", "open the", "go to the", "push the", "examine the")
ENVS, STEPS, LENGTH = 8, 16, 32
CHUNK = 64
"""Sequences per padded batch of prompts x actions."""
TOLERANCE = 1e-3
"""Largest difference of log-probabilities in float32."""

FIELDS = (
    "actions",
    "phrase_tokens",
    "prompt_tokens",
    "row_tokens",
    "row_tokens_joint",
    "steps_per_s",
    "steps_per_s_joint",
    "ratio",
    "rollout_ratio",
    "update_ratio",
    "largest_difference",
    "envs",
    "n_steps",
    "repetitions",
    "threads",
    "torch",
    "processor",
)


class Storeroom(gym.Env):
    """Things appear and disappear; picking up the first of them earns a point."""

    observation_space = gym.spaces.MultiDiscrete([len(THINGS)] * 7)
    action_space = gym.spaces.Discrete(len(THINGS) * len(VERBS))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = LENGTH
        return self._look(), {}

    def step(self, action):
        verb, thing = divmod(int(action), len(THINGS))
        reward = float(verb == 0 and thing == self.seen[0])
        self.left -= 1
        return self._look(), reward, False, self.left == 0, {}

    def _look(self):
        self.seen = self.np_random.choice(len(THINGS), size=7, replace=False)
        return self.seen


class Words(TextTask):
    """The storeroom in words.

    :param count: of legal actions, at most 42.
    """

    system_prompt = "You are in a storeroom. Pick up the thing that is named first."
    list_actions = False

    def __init__(self, count):
        self.max_actions = count

    def format_observation(self, observation):
        return f"You see a {', a '.join(THINGS[thing] for thing in observation)}."

    def action_texts(self, observation, info):
        pairs = itertools.product(range(len(VERBS)), observation)
        legal = {f"{VERBS[verb]} {THINGS[thing]}": verb * len(THINGS) + int(thing) for verb, thing in pairs}
        return dict(itertools.islice(legal.items(), self.max_actions))


class Joint(PhraseActor):
    """Takes the place of the policy's actor: every phrase behind every prompt.

    :param policy: whose model it has.
    """

    def __init__(self, policy):
        super().__init__(policy.backbone, int(policy.action_space.n), policy.settings)

    def scores(self, keys):
        backbone = self.scorer.backbone
        prompts = [Prompt.from_json(decode_bytes(key)) for key in keys]
        pairs = []
        for ids, prompt in zip(backbone.renderer.prompt_ids(prompts), prompts, strict=True):
            pairs += [(ids, list(backbone.renderer.action_ids(phrase))) for phrase in prompt.actions]
        parts = [self.joint(backbone.lm, pairs[begin : begin + CHUNK]) for begin in range(0, len(pairs), CHUNK)]
        scores = pad_sequence(
            torch.cat(parts).split([len(prompt.actions) for prompt in prompts]), batch_first=True, padding_value=ILLEGAL
        )
        return scores, scores.new_zeros(len(scores))

    @staticmethod
    def joint(lm, pairs):
        """Log-probability of each phrase behind its prompt, from one padded batch."""
        ids = pad_sequence([torch.tensor(prompt + phrase) for prompt, phrase in pairs], batch_first=True)
        columns = torch.arange(ids.shape[1])
        starts, ends = torch.tensor([(len(prompt), len(prompt) + len(phrase)) for prompt, phrase in pairs]).T[..., None]
        return joint_log_probs(lm, ids, columns < ends, (columns >= starts - 1) & (columns < ends - 1))


class Counter:
    """Counts the tokens that a model runs."""

    def __init__(self, lm):
        self.tokens = 0
        lm.get_input_embeddings().register_forward_pre_hook(self.count)

    def count(self, _, inputs):
        self.tokens += inputs[0].numel()


def make_model(actions, seed):
    """PPO in the storeroom, after its first look."""
    envs = make_vec_env(
        Storeroom, ENVS, seed=seed, wrapper_class=TextObservationWrapper, wrapper_kwargs={"task": Words(actions)}
    )
    model = PPO(
        LMActorCriticPolicy,
        envs,
        n_steps=STEPS,
        batch_size=64,
        n_epochs=1,
        seed=seed,
        device="cpu",
        policy_kwargs={"score_normalization": "sum"},
    )
    _, callback = model._setup_learn(STEPS * ENVS)
    model.policy.predict(model._last_obs)  # the first call checks the model and warms up
    model.policy.actor.forget()
    return model, callback


def learn(actions, seed, joint):
    """Collect a rollout and learn from it; return the seconds of both and the tokens of an observation when acting."""
    model, callback = make_model(actions, seed)
    if joint:
        model.policy.actor = Joint(model.policy)
    counter, begin = Counter(model.policy.backbone.lm), time.perf_counter()
    model.collect_rollouts(model.env, callback, model.rollout_buffer, STEPS)
    middle, tokens = time.perf_counter(), counter.tokens
    model.train()
    # The value of the last state takes a forward, too.
    return middle - begin, time.perf_counter() - middle, tokens / (ENVS * (STEPS + 1))


def exactness(actions, seed):
    """Largest difference between the log-probabilities of both ways, and mean tokens of prompts and phrases."""
    model, _ = make_model(actions, seed)
    keys = row_keys(model._last_obs)
    with torch.no_grad():
        scores, others = model.policy.actor.scores(keys)[0], Joint(model.policy).scores(keys)[0]
    prompts = [Prompt.from_json(model.observation_space.decode(row)) for row in model._last_obs]
    renderer = model.policy.backbone.renderer
    lengths = [len(renderer.action_ids(phrase)) for prompt in prompts for phrase in prompt.actions]
    return (scores - others).abs().max().item(), mean(map(len, renderer.prompt_ids(prompts))), lengths


def measure(actions, args):
    """Both ways in turn; return the row of the table."""
    difference, prompt_tokens, lengths = exactness(actions, args.seed)
    if difference > TOLERANCE:
        raise SystemExit(f"the two ways differ by {difference:g}: nothing was timed")
    pairs = []
    for repetition in range(args.repetitions):
        seed = args.seed + repetition
        pairs.append((learn(actions, seed, joint=False), learn(actions, seed, joint=True)))
    ratios = [median(slow[part] / fast[part] for fast, slow in pairs) for part in (0, 1)]
    fast, slow = (ENVS * STEPS / median(one[way][0] + one[way][1] for one in pairs) for way in (0, 1))
    ratio = median((slow[0] + slow[1]) / (fast[0] + fast[1]) for fast, slow in pairs)
    row_tokens = [median(one[way][2] for one in pairs) for way in (0, 1)]
    phrase_tokens = f"{min(lengths)} to {max(lengths)}"
    print(
        f"{actions:>3} actions of {phrase_tokens} tokens: {fast:6.1f} env steps/s with the scorer, {slow:6.1f} with "
        f"prompts x actions, ratio {ratio:.1f} (rollout {ratios[0]:.1f}, update {ratios[1]:.1f}); tokens per row "
        f"{row_tokens[0]:.0f} and {row_tokens[1]:.0f}; largest difference {difference:.1e}",
        flush=True,
    )
    numbers = (actions, phrase_tokens, f"{prompt_tokens:.1f}", *(f"{tokens:.1f}" for tokens in row_tokens))
    speeds = (f"{fast:.1f}", f"{slow:.1f}", f"{ratio:.2f}", *(f"{one:.2f}" for one in ratios), f"{difference:.1e}")
    machine = (torch.get_num_threads(), torch.__version__, processor())
    return dict(zip(FIELDS, (*numbers, *speeds, ENVS, STEPS, args.repetitions, *machine), strict=True))


def main(argv=None):
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--actions", type=int, nargs="+", default=[6, 14, 42], help="legal actions per state, up to 42")
    parser.add_argument("--repetitions", type=int, default=5, help="pairs of runs; medians are reported")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS / "legal_actions.csv")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    rows = [measure(actions, args) for actions in args.actions]
    write_table(args.output, FIELDS, rows)
    print(args.output)


if __name__ == "__main__":
    main()

"""What a language model reads in each env: tokens of a prompt and of its phrases, and how many prompts differ.

    python -m benchmarks.prompt_tokens                      # all tasks of benchmarks.real_models, both models
    python -m benchmarks.prompt_tokens --tasks cliffwalking babyai-goobj

Random play among the legal actions, 1 024 env steps with the words and the number of envs that a training has. How many
of the prompts are different says what a training costs: of those that come again, the frozen layers need no second
look. Writes benchmarks/results/prompt_tokens.csv, a row per task and tokenizer; rows of other tasks stay. About a
minute; SmolLM2 needs ``make real`` once.
"""

import argparse
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean

from transformers import AutoTokenizer

from benchmarks.common.numbers import positive
from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import read_rows
from benchmarks.learning.tasks import BY_NAME, lm_settings
from benchmarks.real_models.methods import BUNDLED, MODEL
from benchmarks.real_models.parts import PLANS
from lmpolicy import Prompt, RandomPlay
from lmpolicy.comparison.word_features import read_prompts
from lmpolicy.files import write_table
from lmpolicy.lm.rendering import PromptRenderer
from lmpolicy.models import resolve

FIELDS = (
    "task",
    "model",
    "env_steps",
    "different_prompts",
    "prompt_tokens_mean",
    "prompt_tokens_max",
    "legal_phrases_mean",
    "phrase_tokens_mean",
)
"""``phrase_tokens_mean`` are those of all legal phrases of a prompt together. Means are over env steps."""
NAMES = {BUNDLED: None, MODEL: MODEL}
"""What ``model=`` takes, by name in the file."""


def prompts_of(task: str, steps: int) -> list[Prompt]:
    """Play at random, and return the prompt of each env step.

    :param task: name of a task of ``python -m benchmarks.learning``.
    :param steps: number of env steps, which the envs share evenly.
    """
    env = lm_settings(BY_NAME[task]).make_env(seed=0, training=False)
    player, rows = RandomPlay(env), env.reset()
    found: list[Prompt] = []
    while len(found) < steps:
        found += read_prompts(env, rows)
        rows, _, _, _ = env.step(player.predict(rows)[0])
    env.close()
    return found[:steps]


@cache
def renderer_of(model: str) -> PromptRenderer:
    """What writes the tokens of a prompt.

    :param model: one of :data:`NAMES`.
    """
    return PromptRenderer(AutoTokenizer.from_pretrained(resolve(NAMES[model])))


def measure(task: str, model: str, prompts: Sequence[Prompt]) -> dict[str, str]:
    """Count the tokens of prompts and of their phrases.

    :param task: name of the task.
    :param model: one of :data:`NAMES`.
    :param prompts: of each env step.
    """
    renderer = renderer_of(model)
    lengths = [len(ids) for ids in renderer.prompt_ids(prompts)]
    phrases = {phrase: len(renderer.action_ids(phrase)) for prompt in prompts for phrase in prompt.actions}
    return {
        "task": task,
        "model": model,
        "env_steps": str(len(prompts)),
        "different_prompts": str(len({prompt.to_json() for prompt in prompts})),
        "prompt_tokens_mean": f"{fmean(lengths):.1f}",
        "prompt_tokens_max": str(max(lengths)),
        "legal_phrases_mean": f"{fmean(len(prompt.actions) for prompt in prompts):.1f}",
        "phrase_tokens_mean": f"{fmean(sum(phrases[phrase] for phrase in prompt.actions) for prompt in prompts):.1f}",
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=[*BY_NAME], default=[*PLANS], metavar="TASK")
    parser.add_argument("--models", nargs="+", choices=[*NAMES], default=[*NAMES])
    parser.add_argument("--steps", type=positive, default=1_024, help="env steps")
    parser.add_argument("--output", type=Path, default=RESULTS / "prompt_tokens.csv")
    args = parser.parse_args(argv)
    kept = {(row["task"], row["model"]): row for row in read_rows(args.output)}
    for task in args.tasks:
        prompts = prompts_of(task, args.steps)
        for model in args.models:
            kept[task, model] = row = measure(task, model, prompts)
            print(", ".join(f"{name}: {row[name]}" for name in FIELDS), flush=True)
    order = [*BY_NAME]
    write_table(args.output, FIELDS, (kept[key] for key in sorted(kept, key=lambda key: (order.index(key[0]), key[1]))))


if __name__ == "__main__":
    main()

"""Hold every family of causal LM in Transformers against the naive computation.

    python -m benchmarks.architectures                          # all, about twenty minutes; goes on where it stopped
    python -m benchmarks.architectures --only gpt_neo phimoe --again
    python -m benchmarks.architectures --table                  # what the docs show

Each family is a tiny random model, read from its folder twice: by the policy, and by ``from_pretrained`` for the naive
computation, which runs one text at a time without cache, padding or mask. Each runs in a process of its own, so that
the crash of one ends no other.
"""

from __future__ import annotations

import argparse
import csv
import logging
import os
import pickle
import select
import signal
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
import transformers
from gymnasium import spaces
from peft import PeftModel
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from benchmarks.tiny_models import FAMILIES, VARIANTS, save_tiny
from lmpolicy import LMActorCriticPolicy, Prompt, TextSpace
from lmpolicy.lm.calls import call
from lmpolicy.text.spaces import TokenSpace, row_keys, tokenizer_fingerprint

RESULTS = Path(__file__).parent / "results" / "architectures.csv"
FIELDS = (
    "family",
    "verdict",
    "layout",
    "scores",
    "gradients",
    "written",
    "train_eval",
    "batch",
    "approx_kl",
    "bfloat16",
    "message",
)
LIMITS = {
    "scores": 1e-5,
    "gradients": 1e-4,
    "written": 1e-5,
    "train_eval": 1e-5,
    "batch": 1e-5,
    "approx_kl": 1e-6,
    "bfloat16": 2.5,
}
"""Largest value of each measurement that counts as exact."""
SECONDS = 200
"""Time after which a family is given up."""
NEW_TOKENS = 6
SYSTEM = "You play a game. Choose the best action."
LONG = " and ".join(("row 1, column 3 of the grid", "the pole leans by 7.89 degrees", "Holes: none!"))


def make_prompts() -> list[Prompt]:
    """Prompts on both sides of every window and of every length at which a tiny model changes."""
    texts = {
        "row 1": ("left", "right", "go north", "go south"),
        LONG: ("go north", "go north now", "go"),
        f"{LONG}; {LONG}": ("left", "right"),
        "!": ("!", "!!", "stay!"),
    }
    return [Prompt((("system", SYSTEM), ("user", text)), actions) for text, actions in texts.items()]


def many_prompts() -> list[Prompt]:
    """Short prompts, so many that the typical error in them is not chance."""
    actions = ("left", "right", "go north", "go south")
    return [Prompt((("user", f"You are in row {row}, column 3."),), actions) for row in range(8)]


class Case:
    """One model: the policy on it, and the same model as the naive computation runs it.

    :param folder: of the model.
    :param dtype: precision of the base model.
    :param writes: whether the policy writes its answers.
    """

    def __init__(self, folder: Path, dtype: str = "float32", writes: bool = False) -> None:
        self.folder, self.dtype, self.prompts = folder, dtype, make_prompts() if dtype == "float32" else many_prompts()
        self.space = TextSpace(1024)
        self.rows = th.from_numpy(np.stack([self.space.encode(one.to_json()) for one in self.prompts]))
        actions: Any = spaces.Discrete(4)
        if writes:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            actions = TokenSpace(len(tokenizer), NEW_TOKENS, tokenizer_fingerprint(tokenizer), 0)
        th.manual_seed(0)
        settings: dict[str, Any] = {"model": str(folder), "lora": {"r": 4}, "dtype": dtype, "value_gradient": True}
        self.policy = LMActorCriticPolicy(self.space, actions, lambda _: 0.0, **settings)
        with th.no_grad():
            for name, weight in self.policy.named_parameters():
                if "lora_B" in name:
                    weight.normal_(std=0.2)
        self.policy.set_training_mode(False)
        self.tokens = self.policy.backbone.renderer.prompt_ids(self.prompts)

    def reference(self, dtype: str) -> Any:
        """The model as on disk, with the adapter as PEFT reads it."""
        with tempfile.TemporaryDirectory() as folder:
            self.policy.save_adapter(folder)
            base = AutoModelForCausalLM.from_pretrained(self.folder, dtype=getattr(th, dtype)).eval()
            lm = PeftModel.from_pretrained(base, folder, is_trainable=True).eval()
        learnt = {name: one for name, one in self.policy.backbone.lm.state_dict().items() if "lora_" in name}
        lm.load_state_dict(learnt, strict=False)  # PEFT 0.21 does not find all names again in some families
        return lm

    def scores(self) -> list[th.Tensor]:
        """Scores of each prompt's phrases as the policy computes them."""
        actor: Any = self.policy.actor
        scores, _ = actor.scores(row_keys(self.rows.numpy()))
        return [row[: len(one.actions)] for row, one in zip(scores, self.prompts, strict=True)]

    def naive_scores(self, lm: Any) -> list[th.Tensor]:
        """The same, each token from a pass over what is before it and nothing else."""
        found = []
        for tokens, one in zip(self.tokens, self.prompts, strict=True):
            after: dict[tuple[int, ...], th.Tensor] = {}
            totals = []
            for phrase in one.actions:
                ids = tuple(self.policy.backbone.renderer.action_ids(phrase))
                parts = []
                for end, token in enumerate(ids):
                    if ids[:end] not in after:
                        after[ids[:end]] = next_token(lm, [*tokens, *ids[:end]])
                    parts.append(after[ids[:end]][token])
                totals.append(th.stack(parts).sum())
            found.append(th.stack(totals))
        return found

    def gradients(self, scores: list[th.Tensor], lm: Any) -> dict[str, th.Tensor]:
        """Gradient of a sum in which every score has a weight of its own, by the adapter's names."""
        named = {name: weight for name, weight in lm.named_parameters() if weight.requires_grad}
        flat = th.cat(scores)
        loss = (th.sin(1 + 3 * th.arange(len(flat))) * flat).sum()
        found = th.autograd.grad(loss, list(named.values()), allow_unused=True)
        return {
            name: th.zeros_like(weight) if one is None else one
            for (name, weight), one in zip(named.items(), found, strict=True)
        }


def next_token(lm: Any, tokens: list[int]) -> th.Tensor:
    """Log-probabilities of the token behind a text, ``(vocabulary,)``."""
    return call(lm, input_ids=th.tensor([tokens]), use_cache=False).logits[0, -1].float().log_softmax(-1)


def difference(found: list[th.Tensor], expected: list[th.Tensor]) -> float:
    """Largest difference of two lists of scores, as a share of the second one's spread."""
    one, other = th.cat(found).detach().double(), th.cat(expected).detach().double()
    return float((one - other).abs().max() / other.std())


def examine_choosing(folder: Path) -> dict[str, Any]:
    """Compare scores, gradients, modes and batches of a policy that chooses."""
    case = Case(folder)
    lm = case.reference("float32")
    with th.no_grad():
        remembered = case.scores()
    scores, expected = case.scores(), case.naive_scores(lm)
    mine, theirs = case.gradients(scores, case.policy.backbone.lm), case.gradients(expected, lm)
    largest = max(float(one.abs().max()) for one in theirs.values())
    worst = max(float((mine[name] - theirs[name]).abs().max()) for name in theirs)
    case.policy.set_training_mode(True)
    training = case.scores()
    case.policy.set_training_mode(False)
    case.policy.actor.forget()
    alone, rows, prompts = [], case.rows, case.prompts
    for number in range(len(prompts)):
        case.rows, case.prompts = rows[number : number + 1], prompts[number : number + 1]
        alone += case.scores()
    case.rows, case.prompts = rows, prompts
    return {
        "layout": layout_of(case.policy),
        "scores": max(difference(scores, expected), difference(remembered, expected)),
        "gradients": worst / largest,
        "train_eval": difference(training, scores),
        "batch": difference(alone, scores),
        "approx_kl": approx_kl(case),
    }


def approx_kl(case: Case) -> float:
    """What PPO logs under this name in its first update at a learning rate of 0."""
    case.policy.actor.forget()
    found = []
    for _ in range(4):
        case.policy.set_training_mode(False)
        with th.no_grad():
            actions, _, old = case.policy(case.rows)
        case.policy.set_training_mode(True)
        _, new, _ = case.policy.evaluate_actions(case.rows, actions)
        ratio = (new - old).detach().double()
        found.append(float((ratio.exp() - 1 - ratio).mean()))
    case.policy.set_training_mode(False)
    return max(found)


def layout_of(policy: Any) -> str:
    """Name the way in which the model runs."""
    return "packed" if type(policy.actor.scorer.forward).__name__ == "PackedForward" else "plain"


def examine_writing(folder: Path) -> dict[str, Any]:
    """Compare the most likely answers, and the log-probabilities of sampled ones."""
    case = Case(folder, writes=True)
    lm, actor = case.reference("float32"), case.policy.actor
    space: Any = case.policy.action_space
    with th.no_grad():
        greedy = actor.choose(case.rows, True)
        sampled, _, old = case.policy(case.rows)
        for row, tokens in zip(greedy.numpy(), case.tokens, strict=True):
            answer = space.split(row)[0]
            for end, token in enumerate(answer):
                log_probs = next_token(lm, [*tokens, *answer[:end]])[: space.n_ids]
                if log_probs.max() - log_probs[token] > 1e-4:
                    raise ArithmeticError(f"token {end} of the most likely answer is another one")
    _, log_prob, _ = case.policy.evaluate_actions(case.rows, sampled.float())
    expected, spreads = [], []
    for row, tokens in zip(sampled.numpy(), case.tokens, strict=True):
        answer, parts = space.split(row)[0], []
        for end, token in enumerate(answer):
            logits = next_token(lm, [*tokens, *answer[:end]])[: space.n_ids]
            parts.append(logits.log_softmax(-1)[token])
            spreads.append(logits.std())
        expected.append(th.stack(parts).mean())
    wanted, spread = th.stack(expected).detach(), th.stack(spreads).mean().detach()
    return {"written": max(float((one.detach() - wanted).abs().max() / spread) for one in (log_prob, old))}


def examine_half(folder: Path) -> dict[str, Any]:
    """Compare the error in bfloat16 with that of the naive computation in bfloat16."""
    case = Case(folder, dtype="bfloat16")
    with th.no_grad():
        exact, rounded = case.naive_scores(case.reference("float32")), case.naive_scores(case.reference("bfloat16"))
        scores = case.scores()
    return {"bfloat16": typical(scores, exact) / typical(rounded, exact)}


def typical(found: list[th.Tensor], expected: list[th.Tensor]) -> float:
    """Median of the differences of two lists of scores. Their largest is large where rounding changes an expert."""
    return float((th.cat(found).double() - th.cat(expected).double()).abs().median())


def examine(name: str) -> dict[str, Any]:
    """Measure one family or variant.

    :param name: of :data:`~benchmarks.tiny_models.FAMILIES` or :data:`~benchmarks.tiny_models.VARIANTS`.
    :return: an entry for each of :data:`FIELDS` that applies.
    """
    family, fields = VARIANTS.get(name, (name, {}))
    found: dict[str, Any] = {"family": name}
    with tempfile.TemporaryDirectory() as folder:
        try:
            save_tiny(family, Path(folder), **fields)
            model = AutoModelForCausalLM.from_pretrained(folder)
            model(input_ids=th.arange(2, 80)[None], use_cache=False)
        except Exception as error:  # whatever the code of a family raises at a config that it does not expect
            return {**found, "verdict": "no tiny model", "message": one_line(error)}
        for part in (examine_choosing, examine_writing, examine_half):
            try:
                found |= part(Path(folder))
            except (ValueError, OSError, RuntimeError) as error:
                if not is_refusal(error):
                    traceback.print_exc()
                    return {**found, "verdict": "crash", "message": f"{part.__name__}: {one_line(error)}"}
                what = {examine_choosing: "", examine_writing: "writing: ", examine_half: "bfloat16: "}[part]
                found |= {"refused": what.rstrip(": ") or "all", "message": f"{what}{one_line(error)}"}
                if part is examine_choosing:
                    break
            except Exception as error:
                traceback.print_exc()
                return {**found, "verdict": "crash", "message": f"{part.__name__}: {one_line(error)}"}
    wrong = [name for name, limit in LIMITS.items() if name in found and not found[name] <= limit]
    refused = found.pop("refused", "")
    verdict = {"": "exact", "all": "refused"}.get(refused, f"exact; refused: {refused}")
    return {**found, "verdict": f"wrong: {', '.join(wrong)}" if wrong else verdict}


def is_refusal(error: Exception) -> bool:
    """Whether an error is one of ours that says what to do instead."""
    return any(
        word in str(error).casefold()
        for word in ("choose ", "use action_mode", "a policy needs", "pass ", "give ", "leave ")
    )


def one_line(error: BaseException) -> str:
    """The type and the beginning of an error's message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]


def warm_up() -> None:
    """Do once what every process would do again, such as imports. It runs no backward pass: forks would hang."""
    with tempfile.TemporaryDirectory() as folder, th.no_grad():
        save_tiny("llama", Path(folder))
        case = Case(Path(folder))
        case.reference("float32")
        case.scores()


def in_process(name: str, quiet: bool = True) -> dict[str, Any]:
    """Run :func:`examine` in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        if quiet:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            found = examine(name)
        except BaseException as error:
            found = {"family": name, "verdict": "crash", "message": one_line(error)}
        os.write(writer, pickle.dumps(found))
        os._exit(0)
    os.close(writer)
    answer = b""
    if select.select([reader], [], [], SECONDS)[0]:
        with os.fdopen(reader, "rb") as file:
            answer = file.read()
    else:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if not answer:
        return {"family": name, "verdict": "crash", "message": f"the process died, or took over {SECONDS} s"}
    return pickle.loads(answer)


def main(argv: list[str] | None = None) -> None:
    """Measure families, and write a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="names of families")
    parser.add_argument("--again", action="store_true", help="also those that the file has")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--loud", action="store_true", help="show warnings and tracebacks")
    args = parser.parse_args(argv)
    th.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    warm_up()
    rows = {row["family"]: row for row in read(args.output)}
    for name in args.only or (*FAMILIES, *VARIANTS):
        if name in rows and not args.again:
            continue
        found = in_process(name, quiet=not args.loud)
        rows[name] = {key: f"{value:.2g}" if isinstance(value, float) else value for key, value in found.items()}
        print(*(f"{key} {value}" for key, value in rows[name].items()), flush=True)
        write(args.output, rows)


def read(path: Path) -> list[dict[str, Any]]:
    """Rows that were written before."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: dict[str, dict[str, Any]]) -> None:
    """Write all rows, in the order of their names."""
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, FIELDS, restval="")
        table.writeheader()
        table.writerows(rows[name] for name in sorted(rows))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    main()

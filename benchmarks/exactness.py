"""Measure how far a policy on one model is from the naive computation, in every way in which it is used."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
import transformers
from gymnasium import spaces
from peft import PeftModel
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from lmpolicy import LMActorCriticPolicy, Prompt, TextSpace
from lmpolicy.lm.calls import call
from lmpolicy.text.spaces import TokenSpace, row_keys, tokenizer_fingerprint

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
        settings["score_normalization"] = "sum"
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

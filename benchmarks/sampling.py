"""How fast answers are written and learnt from: against model.generate, and against the bare layers.

    python -m benchmarks.sampling                    # everything; about half an hour on two cores
    python -m benchmarks.sampling --models bundled   # one model, two minutes

Sampling, 32 new tokens for each of 1, 8 and 32 envs, whose prompts have 150 tokens of which all share two thirds:

* policy: ``policy(observations)`` as in a rollout: answers, their log-probabilities and the values; the shared prefix
  is remembered between steps.
* sampler: the answers alone, in the same way.
* first sampler: the answers alone, with the shared prefix run anew, as in the first step after an update.
* generate: ``model.generate`` of Transformers on the batch, padded on the left, sampling from the plain softmax.
* one at a time: ``model.generate`` prompt by prompt, as LlamaGym does.

Update, 8 prompts with answers of 32 tokens: ``evaluate_actions`` forward and backward, against the bare layers and the
output layer on as many tokens, forward and backward (floor). Memory, 32 answers of 64 tokens with a vocabulary of
152 000: peak of the tensors of an update with the logits taken in chunks and with all of them at once, for the output
layer alone and for an update of a model with two layers (more layers add the same to both).

Weights are random but for the bundled LM, which changes nothing about time or memory; no token ends an answer. Methods
take turns; ratios are medians of the ratios within the repetitions. A call of more than 15 seconds is
timed once, short ones up to five times as often. Writes sampling.csv and sampling_memory.csv.
"""

import argparse
import csv
import os
import tempfile
import time
from pathlib import Path
from statistics import median

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import numpy as np
import torch as th
from transformers import AutoTokenizer

from benchmarks.common.paths import RESULTS
from benchmarks.scoring.measure import peak_of_tensors
from benchmarks.scoring.models import BUNDLED, MODELS, QWEN, WORDS, best_dtype, make_policy, save_model
from lmpolicy import Prompt, TextSpace, TokenSpace
from lmpolicy.bundled import BUNDLED as BUNDLED_FOLDER
from lmpolicy.comparison.machine import processor
from lmpolicy.lm.calls import call
from lmpolicy.lm.sampler import Sampler
from lmpolicy.lm.token_head import TokenHead
from lmpolicy.text.spaces import row_keys, tokenizer_fingerprint

PROMPT, SHARED, NEW, ENVS = 150, 100, 32, (1, 8, 32)
ONCE, SHORT = 15.0, 60.0
"""Seconds: a call that takes longer is not repeated; up to so many, repetitions are added."""

POLICY, SAMPLER, FIRST, GENERATE, SINGLE = "policy", "sampler", "first sampler", "generate", "one at a time"
EVALUATE, FLOOR = "evaluate_actions", "floor"
WORK = ("sampling", "update", "memory")
FIELDS = (
    "model",
    "dtype",
    "work",
    "envs",
    "method",
    "median_s",
    "tokens_per_s",
    "env_steps_per_s",
    "times_faster",
    "compared_with",
    "repetitions",
    "threads",
    "torch",
    "processor",
)
MEMORY_FIELDS = ("what", "answers", "tokens", "vocabulary", "peak_mib", "all_logits_peak_mib", "ratio", "torch")
LAYER, UPDATE = "output layer alone", "update of 2 layers"


def make_space(folder, tokens):
    """The space of answers of a model."""
    tokenizer = AutoTokenizer.from_pretrained(folder or BUNDLED_FOLDER)
    return TokenSpace(len(tokenizer), tokens, tokenizer_fingerprint(tokenizer))


def make_rows(policy, envs):
    """Prompts of nearly PROMPT tokens as rows; the first SHARED are the same in all."""

    def row(number):
        own = " ".join(WORDS[(7 * number + 13 * place) % len(WORDS)] for place in range(1000))
        system = " ".join(WORDS[:1000])
        prompt = Prompt((("system", cut(system, SHARED - 8)), ("user", cut(own, PROMPT - SHARED - 8))), ())
        return TextSpace(65_536).encode(prompt.to_json())

    def cut(text, tokens):
        ids = policy.backbone.renderer.text_ids(text)[:tokens]
        return policy.backbone.tokenizer.decode(ids)

    return th.from_numpy(np.stack([row(number) for number in range(envs)]))


def sampling_methods(policy, rows):
    """The ways to answer prompts, by name."""
    actor, lm = policy.actor, policy.backbone.lm
    actor._sampler = sampler = Sampler(actor.scorer, ends=(), stops=())  # all answers are of the same length
    actor.choose(rows[:1], False)
    prompts = [query.context for query in actor.queries.prompts(row_keys(rows.numpy()))]
    width = max(map(len, prompts))
    ids = th.tensor([[0] * (width - len(p)) + p.tolist() for p in prompts])
    mask = th.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    plain = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0, "eos_token_id": None, "pad_token_id": 0}

    def generate(ids, mask):
        with th.autocast("cpu", dtype=th.bfloat16, enabled=next(lm.parameters()).dtype == th.bfloat16):
            lm.generate(input_ids=ids, attention_mask=mask, max_new_tokens=NEW, **plain)

    def first():
        actor.forget()
        sampler(prompts, NEW)

    def one_at_a_time():
        for row, seen in zip(ids, mask, strict=True):
            generate(row[None, seen.bool()], seen[None, seen.bool()])

    methods = {
        POLICY: lambda: policy(rows),
        SAMPLER: lambda: sampler(prompts, NEW),
        FIRST: first,
        GENERATE: lambda: generate(ids, mask),
        SINGLE: one_at_a_time,
    }
    if len(rows) == 1:
        methods.pop(GENERATE)
    return {name: without_gradient(method) for name, method in methods.items()}


def without_gradient(method):
    def run():
        with th.no_grad():
            method()

    return run


def update_methods(policy, rows):
    """An update of answers, and the bare layers on as many tokens."""
    actor, lm = policy.actor, policy.backbone.lm
    answers = np.random.default_rng(0).integers(2, actor.space.n_ids, (len(rows), NEW))
    actions = th.from_numpy(answers)
    prompts = [query.context for query in actor.queries.prompts(row_keys(rows.numpy()))]
    shared = min(int((prompts[0][: len(p)] == p[: len(prompts[0])]).argmin()) for p in prompts[1:])
    width = max(map(len, prompts)) - shared + NEW - 1
    prefix = th.from_numpy(prompts[0][:shared])[None]
    ids = th.from_numpy(np.random.default_rng(1).integers(2, actor.space.n_ids, (len(rows), width)))
    chosen = actions.flatten()

    def evaluate():
        values, log_prob, entropy = policy.evaluate_actions(rows, actions)
        (log_prob.sum() + entropy.sum() + values.sum()).backward()

    def floor():
        trunk = lm.get_base_model().get_decoder()
        loss = call(trunk, input_ids=prefix, use_cache=False).last_hidden_state.sum() * 0
        states = call(trunk, input_ids=ids, use_cache=False).last_hidden_state[:, -NEW:].flatten(0, 1)
        logits = lm.get_output_embeddings()(states.to(next(lm.parameters()).dtype)).float()
        (loss + (logits.gather(1, chosen[:, None])[:, 0] - logits.logsumexp(-1)).sum()).backward()

    return {EVALUATE: evaluate, FLOOR: floor}


def compare(methods, repetitions):
    """Seconds of each method, in turns, after a first call of each; what takes long once, what is short more often."""
    seconds = {name: [] for name in methods}
    start = time.perf_counter()
    for repetition in range(5 * repetitions + 1):
        if repetition > repetitions and time.perf_counter() - start > SHORT:
            break
        for name, method in methods.items():
            if repetition and seconds[name][0] > ONCE:
                continue
            before = time.perf_counter()
            method()
            seconds[name].append(time.perf_counter() - before)
    return {name: taken[1:] or taken for name, taken in seconds.items()}


def ratio(seconds, slow, fast):
    """How many times as long as the other a method takes."""
    count = max(len(seconds[slow]), len(seconds[fast]))
    pairs = (seconds[name] * (count if len(seconds[name]) == 1 else 1) for name in (slow, fast))
    return median(a / b for a, b in zip(*pairs, strict=True))


def run_model(name, folder, args, write):
    """Time a model."""
    dtype = best_dtype(name, "cpu")
    policy = make_policy(folder, make_space(folder, NEW), dtype)
    with th.random.fork_rng(devices=[]):
        for envs in args.envs if "sampling" in args.work else ():
            seconds = compare(sampling_methods(policy, make_rows(policy, envs)), args.repetitions)
            for method, taken in seconds.items():
                pairs = [(SINGLE, ratio(seconds, SINGLE, method))]
                if GENERATE in seconds:
                    pairs.append((GENERATE, ratio(seconds, GENERATE, method)))
                for other, times in pairs:
                    if method in (POLICY, SAMPLER, FIRST):
                        write(name, dtype, "sampling", envs, method, taken, envs * NEW, envs, times, other)
                if method in (GENERATE, SINGLE):
                    write(name, dtype, "sampling", envs, method, taken, envs * NEW, envs, 1.0, method)
        if "update" not in args.work:
            return
        seconds = compare(update_methods(policy, make_rows(policy, 8)), args.repetitions)
        for method, taken in seconds.items():
            times = ratio(seconds, FLOOR, method)
            write(name, dtype, "update", 8, method, taken, 8 * NEW, 8, times, FLOOR)


def run_memory(folder, output, answers=32, tokens=64, rows=None):
    """Peak memory with the logits in chunks (of so many rows; default: as always), and with all of them."""
    policy = make_policy(folder, make_space(folder, tokens), "float32")
    observations = make_rows(policy, answers)
    actor, lm = policy.actor, policy.backbone.lm
    actor.queries.ends = ()  # type: ignore[attr-defined]
    with th.no_grad():
        policy.predict_values(observations[:1])
    vocabulary = lm.get_output_embeddings().weight.shape[0]
    actor.scorer._head = head = TokenHead(lm, vocabulary)
    chunked = rows or head.rows
    states = th.randn(answers * tokens, policy.backbone.hidden_size, requires_grad=True)
    ids = th.randint(vocabulary, (answers * tokens,))
    actions = th.randint(actor.space.n_ids, (answers, tokens))  # type: ignore[attr-defined]

    def layer():
        log_probs, entropies = head(states, ids, 1.0)
        (log_probs + entropies).sum().backward()
        states.grad = None
        return 0.0

    def update():
        values, log_prob, entropy = policy.evaluate_actions(observations, actions)
        (log_prob.sum() + entropy.sum() + values.sum()).backward()
        for parameter in policy.parameters():
            parameter.grad = None
        return 0.0

    with (output / "sampling_memory.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(MEMORY_FIELDS)
        for what, work in ((LAYER, layer), (UPDATE, update)):
            peaks = []
            for head.rows in (chunked, len(states)):
                peaks.append(peak_of_tensors(work, th.device("cpu")))
            share = peaks[0] / peaks[1]
            print(f"{what}: peak {peaks[0]:,.0f} MiB in chunks, {peaks[1]:,.0f} MiB with all logits: {share:.3f}")
            sizes = (answers, tokens, vocabulary)
            table.writerow((what, *sizes, *(f"{peak:.1f}" for peak in peaks), f"{share:.4f}", th.__version__))
            file.flush()


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[BUNDLED, QWEN])
    parser.add_argument("--envs", nargs="+", type=int, default=ENVS)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--work", nargs="+", choices=WORK, default=WORK, help="what to measure")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(argv)
    th.set_num_threads(args.threads)
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary, (args.output / "sampling.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(FIELDS)

        def write(name, dtype, work, envs, method, taken, tokens, steps, times, other):
            seconds = median(taken)
            print(
                f"{name:<13} {work} {envs:>2} envs, {method:<16} {seconds:8.3f} s, {tokens / seconds:8.1f} tokens/s, "
                f"{steps / seconds:7.2f} env steps/s, {times:6.2f} x as fast as {other}",
                flush=True,
            )
            numbers = (f"{seconds:.4f}", f"{tokens / seconds:.2f}", f"{steps / seconds:.3f}", f"{times:.3f}", other)
            machine = (len(taken), args.threads, th.__version__, processor())
            table.writerow((name, dtype, work, envs, method, *numbers, *machine))
            file.flush()

        for name in args.models if set(args.work) - {"memory"} else ():
            folder = None if name == BUNDLED else Path(temporary) / name
            if folder is not None:
                save_model(name, folder)
            run_model(name, folder, args, write)
        if "memory" in args.work:
            folder = Path(temporary) / "shallow"
            save_model(QWEN, folder, layers=2)
            run_memory(folder, args.output)


if __name__ == "__main__":
    main()

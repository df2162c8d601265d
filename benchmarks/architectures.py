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
import logging
import multiprocessing
import os
import re
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch as th
import transformers
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from benchmarks.common.rows import read_rows
from benchmarks.exactness import LIMITS, examine_choosing, examine_half, examine_writing
from benchmarks.tiny_models import FAMILIES, VARIANTS, save_tiny
from lmpolicy.files import write_table

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
SECONDS = 200
"""Time after which a family is given up."""
Measure = Callable[[str], dict[str, Any]]
MESSAGE = 240
"""Largest number of characters of a message that are kept."""


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
                what = {examine_choosing: "all", examine_writing: "writing", examine_half: "bfloat16"}[part]
                found |= {"refused": what, "message": one_line(error)}
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
    text = re.sub(rf"{re.escape(tempfile.gettempdir())}/\w+", "the model", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text}"[:MESSAGE]


def in_process(name: str, quiet: bool = True, measure: Measure = examine) -> dict[str, Any]:
    """Measure a family in a process of its own.

    The process is forked from one that has imported everything and run nothing, because torch's threads do not survive
    a fork.

    :param name: as in :func:`examine`.
    :param quiet: whether warnings and tracebacks of the process are left out.
    :param measure: what the process does, a function of a module.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "lmpolicy.policy"])
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(writer, name, quiet, measure), daemon=True)
    process.start()
    writer.close()
    with reader:
        try:
            found = reader.recv() if reader.poll(SECONDS) else None
        except EOFError:
            found = None
    process.kill()
    process.join()
    if found is None:
        return {"family": name, "verdict": "crash", "message": f"the process died, or took over {SECONDS} s"}
    return found


def _answer(writer: Connection, name: str, quiet: bool, measure: Measure) -> None:
    """Send what was measured, or the error."""
    if quiet:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    th.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    try:
        found = measure(name)
    except BaseException as error:
        found = {"family": name, "verdict": "crash", "message": one_line(error)}
    writer.send(found)


def as_table(rows: list[dict[str, Any]]) -> str:
    """The rows as the docs show them, those without a tiny model last and in one line."""
    lines = [
        "| family | runs | scores | gradients | writing | approx_kl | bfloat16 | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    shown = [row for row in rows if row["verdict"] != "no tiny model"]
    for row in shown:
        numbers = [row[name] or "–" for name in ("layout", "scores", "gradients", "written", "approx_kl", "bfloat16")]
        verdict = row["verdict"] if not row["message"] else f"{row['verdict']}: {row['message'].replace('|', '/')}"
        lines.append(f"| {row['family']} | {' | '.join(numbers)} | {verdict} |")
    exact = sum(row["verdict"] == "exact" for row in shown)
    others = ", ".join(row["family"] for row in rows if row["verdict"] == "no tiny model")
    return "\n".join([f"Exact: {exact} of {len(shown)}.", "", *lines, "", f"No tiny model could be made of: {others}."])


def main(argv: list[str] | None = None) -> None:
    """Measure families, and write a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="names of families")
    parser.add_argument("--again", action="store_true", help="also those that the file has")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="print the table of the docs, and measure nothing")
    parser.add_argument("--loud", action="store_true", help="show warnings and tracebacks")
    args = parser.parse_args(argv)
    if args.table:
        print(as_table(read_rows(args.output)))
        return
    rows = {row["family"]: row for row in read_rows(args.output)}
    for name in args.only or (*FAMILIES, *VARIANTS):
        if name in rows and not args.again:
            continue
        found = in_process(name, quiet=not args.loud)
        rows[name] = {key: f"{value:.2g}" if isinstance(value, float) else value for key, value in found.items()}
        print(*(f"{key} {value}" for key, value in rows[name].items()), flush=True)
        write_table(args.output, FIELDS, (rows[name] for name in sorted(rows)))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    main()

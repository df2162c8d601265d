"""The modules one by one: what importing them costs, and the examples in their docstrings."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys

import pytest


def test_the_wrapper_needs_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, lmpolicy; from lmpolicy import TextObservationWrapper, TextTask, envs\n"
        "import gymnasium as gym; env = TextObservationWrapper(gym.make('CartPole-v1')); env.reset(); env.step(0)\n"
        "print(sorted({'torch', 'transformers', 'stable_baselines3', 'peft', 'tokenizers'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_describe_imports_neither_torch_nor_transformers():
    code = "import sys, lmpolicy.text.describing; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "module",
    [
        "models.names",
        "text.spaces",
        "text.prompt",
        "text.task",
        "text.phrases",
        "text.describing",
        "text.spelling",
        "text.space_parts",
        "report.explaining",
        "report.page",
        "report.recording",
        "wrapper",
        "training.imitation.demonstrations",
        "training.settings.hyperparameters",
        "training.multi_env",
        "training.settings.script_options",
        "training.shaping",
    ],
)
def test_examples_in_docstrings(module: str) -> None:
    found = importlib.import_module(f"lmpolicy.{module}")
    failures, count = doctest.testmod(found)
    assert failures == 0
    assert count > 0 or module in ("text.prompt", "text.phrases", "text.space_parts")


def test_a_kernel_that_bitsandbytes_lacks_is_not_told_but_other_warnings_are() -> None:
    code = (
        "import logging, lmpolicy.lm\n"
        "log = logging.getLogger('bitsandbytes.backends.cpu.ops')\n"
        "log.warning('Failed to load CPU gemm_4bit_forward from kernels-community: %s.', 'none')\n"
        "log.warning('Another %s', 'warning')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr == "Another warning\n"

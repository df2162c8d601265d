"""The notebook runs from top to bottom in a kernel of its own; the training is cut short, nothing else is changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lmpolicy

ROOT = Path(__file__).parents[1]
PATH = ROOT / "examples" / "first_steps.ipynb"
CELLS: list[dict[str, Any]] = json.loads(PATH.read_text())["cells"]


def test_it_is_kept_without_outputs() -> None:
    code = [cell for cell in CELLS if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason='needs nbclient: pip install "lmpolicy[notebook]"')
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    pytest.importorskip("pygame")
    notebook = nbformat.read(PATH, as_version=4)
    nbformat.validate(notebook)
    (training,) = (cell for cell in notebook.cells if "STEPS = 4_096" in cell.source)
    training.source = training.source.replace("STEPS = 4_096", "STEPS = 1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # beside other programs, threads that wait for each other take minutes
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    read, trained, explained, played, page, loaded = (cell for cell in notebook.cells if cell.cell_type == "code")
    assert "Pole leans" in read.outputs[0].text
    assert "('push left', 'push right')" in read.outputs[0].text
    printed = "".join(output.text for output in trained.outputs if output.get("name") == "stdout").splitlines()
    assert [line.partition(" (")[0] for line in printed] == ["before:", "after:"]
    for cell in (explained, played):
        assert "<table" in cell.outputs[-1].data["text/html"]
    assert "report.html" in page.outputs[-1].data["text/plain"]
    assert (tmp_path / "runs/notebook/report.html").exists()
    settings = lmpolicy.hyperparameters("CartPole-v1")
    assert loaded.outputs[-1].data["text/plain"] == str(settings.n_envs * settings.n_steps), "one rollout"

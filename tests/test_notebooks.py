"""Every notebook source runs from top to bottom at smoke size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.py"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jupytext = pytest.importorskip("jupytext")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("BO_TUNER_SMOKE", str(toy_data))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(path.parent.parent), os.environ.get("PYTHONPATH", "")]))
    notebook = jupytext.read(path)
    client = nbclient.NotebookClient(notebook, timeout=150, kernel_name="python3")
    client.execute(cwd=str(tmp_path))
    assert any(cell.get("outputs") for cell in notebook.cells if cell.cell_type == "code")

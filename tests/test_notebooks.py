"""Every notebook source runs from top to bottom at smoke size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.py"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(
    path: Path, toy_data: Path, toy_prior_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jupytext = pytest.importorskip("jupytext")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("BO_TUNER_KERNEL", "tests.toy_kernel")
    monkeypatch.setenv("BO_TUNER_DATA", str(toy_data))
    monkeypatch.setenv("BO_TUNER_PRIOR", str(toy_prior_file))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(path.parent.parent), os.environ.get("PYTHONPATH", "")]))
    notebook = jupytext.read(path)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=150, kernel_name="python3", resources=resources).execute()
    assert any(cell.get("outputs") for cell in notebook.cells if cell.cell_type == "code")

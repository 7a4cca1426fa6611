"""What importing costs. The layers themselves are import-linter's, see pyproject.toml."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path

import pytest

import bo_tuner

PACKAGE = Path(bo_tuner.__file__).parent
HEAVY = {
    "torch",
    "triton",
    "pandas",
    "numpy",
    "scipy",
    "pyarrow",
    "botorch",
    "gpytorch",
    "lightgbm",
    "matplotlib",
    "rich",
}


def loaded_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after ``code``."""
    report = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    program = f"{code}\n{report}"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(result.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "code",
    ["import bo_tuner", "import bo_tuner.cli; bo_tuner.cli._parser().format_help()"],
    ids=["import", "help"],
)
def test_start_is_light(code: str) -> None:
    assert not loaded_by(code) & HEAVY


@pytest.mark.parametrize("module", ["kernels", "kernels.gemm", "kernels.attention", "space", "storage.tables", "tuner"])
def test_cpu_side_needs_neither_triton_nor_torch(module: str) -> None:
    assert not loaded_by(f"import bo_tuner.{module}") & {"torch", "triton", "matplotlib", "hydra"}


def test_help_answers_within_half_a_second() -> None:
    durations = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "bo_tuner.cli", "--help"], capture_output=True, check=True)
        durations.append(time.perf_counter() - start)
    assert min(durations) < 0.5


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_are_short_and_documented(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    assert ast.get_docstring(ast.parse(text)) or not text


@pytest.mark.parametrize("name", ["utils", "helpers", "common", "core", "misc"])
def test_no_room_without_a_name(name: str) -> None:
    assert not list(PACKAGE.rglob(f"{name}*"))


def test_public_names_resolve() -> None:
    for name in bo_tuner.__all__:
        assert getattr(bo_tuner, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = bo_tuner.no_such_name

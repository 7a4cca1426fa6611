"""`compile`, and priors that use what it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bo_tuner.cli import main
from bo_tuner.evaluators.compiling import compile_missing, triton_version
from bo_tuner.kernels import load_kernel
from bo_tuner.space import Config
from bo_tuner.storage.compiled import FACTS, CompiledFacts
from bo_tuner.task import Task, device_named

TOY = "tests.toy_kernel"


def test_recorded_facts_train_a_prior_that_needs_them(
    toy_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, prior = tmp_path / "compiled", tmp_path / "toy.safetensors"
    assert main(["compile", TOY, "--recorded", "--tables", str(toy_data), "--out", str(folder)]) == 0
    assert f"builds of 1 tables; facts are in {folder}" in capsys.readouterr().out
    tables = ["--tables", str(toy_data)]
    assert main(["meta-train", TOY, *tables, "--compiled", str(folder), "--out", str(prior), "--quiet"]) == 0
    judged = ["verify", TOY, *tables, "--prior", str(prior), "--trials", "2", "--quiet"]
    assert main(judged) == 2
    assert "compiled: was trained with what the compiler says" in capsys.readouterr().err
    main([*judged, "--compiled", str(tmp_path)])
    assert "are not in" in capsys.readouterr().err


def test_a_prior_without_facts_has_no_use_for_them(
    toy_data: Path, toy_prior_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["verify", TOY, "--tables", str(toy_data), "--prior", str(toy_prior_file), "--quiet"]
    assert main([*words, "--compiled", str(tmp_path)]) == 2
    assert "compiled: was trained without what the compiler says" in capsys.readouterr().err
    assert main([*words, "--compiled", str(tmp_path / "no")]) == 2
    assert "--compiled:" in capsys.readouterr().err


class _Few(CompiledFacts):
    """As if all but two builds were known."""

    def missing(self, task: Task, triton: str) -> list[Config]:
        return super().missing(task, triton)[:2]


def test_builds_are_compiled_for_a_device_that_is_not_here(tmp_path: Path) -> None:
    spec = load_kernel("gemm")
    task = spec.task({"M": 16, "N": 512, "K": 256}, device_named("nvidia_a100_sxm4_80gb"))
    facts, seconds = _Few(tmp_path, spec), list[float]()
    first = facts.missing(task, triton_version())
    assert compile_missing(facts, task, lambda result: seconds.append(result.compile_s), n_workers=1) == 0
    assert len(seconds) == 2
    assert not set(map(str, first)) & set(map(str, facts.missing(task, triton_version())))
    path = facts.path((8, 0), triton_version())
    assert all(name in path.read_text(encoding="utf-8") for name in FACTS)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["gemm"], "M: is missing"),
        (["gemm", "M=16", "--recorded"], "--recorded: takes all recorded shapes"),
        (["gemm", "M=16", "N=64", "K=64", "--device", "abacus"], "abacus"),
    ],
)
def test_bad_input(words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", *words, "--out", str(tmp_path)]) == 2
    assert told in capsys.readouterr().err


def test_out_must_be_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main(["compile", "gemm", "--recorded", "--out", str(file)]) == 2
    assert "--out:" in capsys.readouterr().err

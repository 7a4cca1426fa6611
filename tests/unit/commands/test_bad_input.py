"""Bad input: one line on stderr that names the field, exit code 2, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bo_tuner.cli import main

TOY = "tests.toy_kernel"

BAD = {
    "no command": ("", "COMMAND"),
    "unknown command": ("bogus", "COMMAND: invalid choice: 'bogus'"),
    "unknown option": ("space gemm M=1 N=32 K=32 --bogus", "--bogus: is no argument of bo-tuner space"),
    "unknown kernel": ("space gem M=1", "kernel: 'gem' is not one of"),
    "kernel that is no name": ("space ../gemm M=1", "kernel: '../gemm'"),
    "module that is not there": ("space tests.nothing a=1", "kernel: 'tests.nothing' cannot be imported"),
    "module without a spec": ("space json.decoder a=1", "must define one KernelSpec"),
    "M=0": ("space gemm M=0 N=32 K=32", "M: 0 is not an integer of at least 1"),
    "K=-1": ("space gemm M=1 N=32 K=-1", "K: -1 is not an integer of at least 1"),
    "a word for a number": ("space gemm M=many N=32 K=32", "M: 'many' is not an integer of at least 1"),
    "a fraction": ("space gemm M=1.5 N=32 K=32", "M: '1.5' is not an integer"),
    "a bare word": ("space gemm hello", "dimension: 'hello' is not of the form NAME=SIZE"),
    "a name without a size": ("space gemm M= N=32 K=32", "M: '' is not an integer"),
    "missing dimension": ("space gemm M=1 N=32", "K: is missing"),
    "unknown dimension": ("space gemm M=1 N=32 K=32 Q=2", "Q: is no dimension of gemm"),
    "dimension given twice": ("space gemm M=1 M=2 N=32 K=32", "M: is given twice"),
    "size that the kernel refuses": ("space gemm M=1 N=33 K=32", "N: 33 is not"),
    "unknown device": ("space gemm M=1 N=32 K=32 --device abacus", "device: 'abacus' is not one of"),
    "too many SMs": ("space gemm M=1 N=32 K=32 --device nvidia_h200_999_sms", "sms: 999"),
    "0 trials": ("tune gemm M=1 N=32 K=32 --trials 0", "--trials: '0' is not an integer of at least 1"),
    "a word for trials": ("tune gemm M=1 N=32 K=32 --trials few", "--trials: 'few' is not an integer"),
    "negative seed": ("tune gemm M=1 N=32 K=32 --seed -1", "--seed: '-1' is not an integer of at least 0"),
    "no shapes": ("shapes gemm --sample 0", "--sample: '0'"),
    "missing table folder": ("tune gemm M=1 N=32 K=32 --replay --tables /nowhere", "--tables: /nowhere is no folder"),
    "missing table": ("check /nowhere.parquet", "/nowhere.parquet"),
    "draw without a seed": ("collect gemm --sample 2 --seed 1 --sample 3", "--seed: is given 1 times, --sample 2"),
    "unknown method": ("verify gemm --method magic", "--method: 'magic' is not one of"),
    "gain of two": (
        "tune gemm M=64 N=64 K=64 --replay --min-gain 2",
        "--min-gain: '2' is not a number of at least 0 and below 1",
    ),
    "nothing but confirmation": (
        "tune gemm M=64 N=64 K=64 --replay --trials 2 --confirm 2",
        "--confirm: 2 is not below the budget of 2 trials",
    ),
    "missing record": ("explain /nowhere.json", "RECORD: /nowhere.json cannot be read"),
    "missing prior": ("verify gemm --prior /nowhere", "prior: /nowhere is no file"),
    "unwritable file": ("verify gemm --json /nowhere/x.json", "file: /nowhere/x.json cannot be written"),
    "one prior for two kernels": ("demo --prior x", "--prior: fits one kernel, and 2 are asked for"),
    "0 GPUs": ("collect gemm --sample 1 --seed 1 --gpus 0", "--gpus: '0' is not an integer of at least 1"),
    "a word for GPUs": ("collect gemm --sample 1 --seed 1 --gpus all", "--gpus: 'all' is not an integer"),
    "collect without a sample": ("collect gemm --seed 1", "--sample"),
}


@pytest.mark.parametrize(("line", "told"), BAD.values(), ids=BAD)
def test_one_line_and_exit_code_2(line: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("bo-tuner: error: ")
    assert captured.err.count("\n") == 1
    assert told in captured.err


def test_real_process_prints_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bo_tuner.cli", "space", "gemm", "M=0", "N=32", "K=32"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == "bo-tuner: error: M: 0 is not an integer of at least 1\n"


def test_live_tuning_without_a_gpu_points_to_replay(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["tune", TOY, "rows=100", "cols=100"]) == 2
    assert "--replay: is needed here" in capsys.readouterr().err

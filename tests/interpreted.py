"""Run configs of a kernel in Triton's interpreter, in a process of its own: ``TRITON_INTERPRET`` acts at import.

``python -m tests.interpreted KERNEL CASES`` reads [[shape, config], …] as JSON and prints the relative error of each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

N_SMS = 3  # few, so that small problems fill the chip and the persistent schedule has more than one round


def relative_errors(kernel: str, cases: Sequence[tuple[Mapping[str, int], Mapping[str, Any]]]) -> list[float]:
    """‖out − ref‖ / ‖ref‖ of each (shape, config), outputs poisoned with NaN and launched twice."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "tests.interpreted", kernel, json.dumps(cases)]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root, check=False)
    assert done.returncode == 0, done.stderr
    errors: list[float] = json.loads(done.stdout.splitlines()[-1])
    return errors


def _main(kernel: str, cases: str) -> None:
    from bo_tuner.kernels import load_kernel
    from bo_tuner.task import device_named

    spec, device = load_kernel(kernel), device_named("nvidia_h200").with_sms(N_SMS)
    errors = []
    for shape, config in json.loads(cases):
        task = spec.task(shape, device)
        assert spec.space.why_invalid(config, task) is None, (shape, config, spec.space.why_invalid(config, task))
        buffers = spec.program.buffers(task, 0, "cpu")
        reference = spec.program.reference(buffers)
        build, launch = spec.program.build(config, task), spec.program.launch(config, task, buffers)
        for _ in range(2):  # the second launch finds the scratch as the first one left it
            buffers.output.fill_(float("nan"))
            build.function[launch.grid](*launch.args, num_warps=build.num_warps, num_stages=build.num_stages)
        errors.append(float((buffers.output.float() - reference).norm() / reference.norm()))
    print(json.dumps(errors))


if __name__ == "__main__":
    _main(*sys.argv[1:])

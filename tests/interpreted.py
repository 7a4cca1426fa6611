"""Run configs of a kernel in Triton's interpreter, in a process of its own: ``TRITON_INTERPRET`` acts at import.

``python -m tests.interpreted KERNEL CASES N_SMS`` reads [[shape, config], …] as JSON and prints the relative error of
each.
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


#: (shape, config)
Case = tuple[Mapping[str, int], Mapping[str, Any]]


def relative_errors(kernel: str, cases: Sequence[Case], n_sms: int = N_SMS) -> list[float]:
    """‖out − ref‖ / ‖ref‖ of each case, outputs poisoned with NaN and launched twice."""
    errors: list[float] = in_interpreter("-m", "tests.interpreted", kernel, json.dumps(cases), str(n_sms))
    return errors


def in_interpreter(*arguments: str) -> Any:
    """The JSON that a Python process with these arguments prints on its last line, Triton interpreting in it."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command, root = [sys.executable, *arguments], Path(__file__).parent.parent
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def _main(kernel: str, cases: str, n_sms: str) -> None:
    from bo_tuner.kernels import load_kernel
    from bo_tuner.task import device_named

    spec, device = load_kernel(kernel), device_named("nvidia_h200").with_sms(int(n_sms))
    program = spec.program
    errors = []
    for shape, config in json.loads(cases):
        task = spec.task(shape, device)
        reason = spec.space.why_invalid(config, task)
        assert reason is None, (shape, config, reason)
        buffers = program.buffers(task, 0, "cpu")
        reference = program.reference(buffers)
        build, launch = program.build(config, task), program.launch(config, task, buffers)
        for _ in range(2):  # the second launch finds the scratch as the first one left it
            buffers.output.fill_(float("nan"))
            build.function[launch.grid](*launch.args, num_warps=build.num_warps, num_stages=build.num_stages)
        errors.append(float((buffers.output.float() - reference).norm() / reference.norm()))
    print(json.dumps(errors))


if __name__ == "__main__":
    _main(*sys.argv[1:])

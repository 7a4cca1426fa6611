"""The page of results, out of the tables: runs every experiment that the page needs and writes it.

    python -m experiments.report

A run that is there already, made by the same code of the same tables, is not run again.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import hydra
from omegaconf import DictConfig, OmegaConf

from bo_tuner.errors import UserError
from experiments.record import checksum, replay_hash
from experiments.results import write_page
from experiments.schema import ReportCfg, register

log = logging.getLogger(__name__)
register()


@dataclass(frozen=True)
class Run:
    """One comparison that the page needs.

    Args:
        experiment: its name.
        kernel: the kernel's name.
        device: key of the device that is judged.
        overrides: further ones, as Hydra takes them.
        folder: of all runs.
    """

    experiment: str
    kernel: str
    device: str
    overrides: Sequence[str]
    folder: Path

    @property
    def path(self) -> Path:
        """Where the run writes."""
        return self.folder / self.experiment / self.kernel.rpartition(".")[2] / self.device

    def is_done(self) -> bool:
        """Whether it ran, with this code, these tables and these overrides."""
        try:
            record = json.loads((self.path / "run.json").read_text(encoding="utf-8"))
            tables = {path: checksum(Path(path)) for path in record["tables"]}
            asked = OmegaConf.to_object(OmegaConf.load(self.path / ".hydra" / "overrides.yaml"))
        except (OSError, ValueError, KeyError):
            return False
        found = (record["code"], record["tables"], asked)
        return bool(found == (replay_hash(record["kernel"]), tables, self._overrides()))

    def start(self) -> None:
        """Run it in a process of its own.

        Raises:
            UserError: it failed.
        """
        if self.is_done():
            return
        name = "/".join(self.path.parts[-3:])
        log.info("%s", name)
        command = [sys.executable, "-m", "experiments.compare", *self._overrides(), f"hydra.run.dir={self.path}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(f"{name}: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1]}")

    def _overrides(self) -> list[str]:
        kernel = f"kernel={self.kernel}" if "." not in self.kernel else f"kernel.name={self.kernel}"
        return [f"experiment={self.experiment}", kernel, f"device={self.device}", *self.overrides]


def report(cfg: ReportCfg) -> Path:
    """Run what is missing and write the page.

    Returns:
        the page.

    Raises:
        UserError: a run failed.
    """
    folder = Path(cfg.folder)
    runs = [
        Run(experiment, kernel, device, list(cfg.overrides), folder)
        for experiment, devices in cfg.runs.items()
        for kernel in cfg.kernels
        for device in devices
    ]
    with ThreadPoolExecutor(cfg.n_jobs) as jobs:
        for _ in jobs.map(Run.start, runs):
            pass
    return write_page({(run.experiment, run.path.parts[-2], run.device): run.path for run in runs}, Path(cfg.docs))


@hydra.main(version_base="1.3", config_path="../configs", config_name="report")  # type: ignore[untyped-decorator]
def main(cfg: DictConfig) -> None:
    """Entry point; bad input ends with one line and exit code 2."""
    try:
        log.info("wrote %s", report(cast(ReportCfg, cfg)))
    except UserError as error:
        print(f"experiments.report: error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

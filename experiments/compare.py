"""Methods × tasks × seeds by replay of recorded tables.

    python -m experiments.compare
    python -m experiments.compare experiment=rivals_thin kernel=attention
    python -m experiments.compare -m kernel=gemm,attention launcher=joblib

A run folder holds ``cfg.yaml`` (resolved), ``run.json``, ``studies.parquet`` (a row a trial), ``summary.md``,
``sample_efficiency.png`` and ``regret.png``.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import cast

import hydra
import pandas as pd
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from bo_tuner.analysis import plots
from bo_tuner.analysis.curves import mean_curves, with_regret
from bo_tuner.analysis.tables import efficiency_table, markdown
from bo_tuner.commands.arguments import parse_kernel
from bo_tuner.commands.figures import mean_random_curve, random_statistics, summary_frame
from bo_tuner.commands.locate import read_split, spread, tables_root
from bo_tuner.commands.screen import console
from bo_tuner.errors import UserError
from bo_tuner.protocol import summarise, verify
from experiments.build import searcher_factory
from experiments.record import write_run
from experiments.schema import CompareCfg, register

log = logging.getLogger(__name__)
register()


def compare(cfg: CompareCfg, folder: Path) -> pd.DataFrame:
    """Run the comparison and write the run folder.

    Args:
        cfg: see the schema.
        folder: where the results go; it exists.

    Returns:
        The studies, one row a method, task, seed and trial.
    """
    start = time.perf_counter()
    spec = parse_kernel(cfg.kernel.name)
    root = tables_root(Path(cfg.tables) if cfg.tables else None)
    tables = read_split(root, spec, cfg.device.name, cfg.split.name)
    tables = spread(tables, cfg.shapes.n_tasks or len(tables))
    if not cfg.methods:
        raise UserError("methods: is empty")
    frames = []
    for name, method in cfg.methods.items():
        log.info("%s: %d shapes × %d seeds", name, len(tables), cfg.n_seeds)
        factory = searcher_factory(name, method, spec)
        frames.append(verify(spec, tables, factory, n_trials=cfg.trials, seeds=range(cfg.n_seeds)))
    studies = pd.concat(frames, ignore_index=True)
    studies.to_parquet(folder / "studies.parquet", index=False)
    OmegaConf.save(cfg, folder / "cfg.yaml", resolve=True)
    paths = [table.path for table in tables if table.path is not None]
    write_run(folder, spec.name, paths, {"n_tasks": len(tables), "seconds": round(time.perf_counter() - start, 1)})

    efficiency = {frame["method"].iloc[0]: summarise(frame)["efficiency"] for frame in frames}
    summary = summary_frame(efficiency | {"random (expected)": random_statistics(tables, cfg.trials)})
    (folder / "summary.md").write_text(markdown(summary), encoding="utf-8")
    title = f"{spec.name}, {cfg.split.name}, {len(tables)} shapes, {tables[0].task.device.name}"
    console().print(efficiency_table(summary, title))

    random = mean_random_curve(tables, cfg.trials)
    with plots.figure(folder / "sample_efficiency.png") as (axes,):
        curves = mean_curves(studies, n_resamples=cfg.n_resamples)
        plots.sample_efficiency(curves, axes, random=random, title=title)
    with plots.figure(folder / "regret.png") as (axes,):
        plots.regret(mean_curves(with_regret(studies), "regret", n_resamples=cfg.n_resamples), axes, title=title)
    log.info("results in %s", folder)
    return studies


@hydra.main(version_base="1.3", config_path="../configs", config_name="compare")  # type: ignore[untyped-decorator]
def main(cfg: DictConfig) -> None:
    """Entry point; bad input ends with one line and exit code 2."""
    try:
        compare(cast(CompareCfg, cfg), Path(HydraConfig.get().runtime.output_dir))
    except UserError as error:
        print(f"experiments.compare: error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

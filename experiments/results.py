"""The page of results out of run folders: tables and plots, no number by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf

from bo_tuner.analysis import plots
from bo_tuner.analysis.curves import mean_curves, trials_to
from bo_tuner.analysis.tables import markdown
from bo_tuner.analysis.trust import calibration, worst_tasks
from bo_tuner.commands.figures import summary_frame
from bo_tuner.kernels import load_kernel
from bo_tuner.protocol import REPORTED_TRIALS, summarise
from bo_tuner.storage.tables import read_tables
from experiments.noise import noise_table

#: (experiment, kernel, device) → run folder.
Runs = Mapping[tuple[str, str, str], Path]

HEADLINE = "rivals_thin"
UNSEEN_DEVICE = "unseen_device"
OURS = "meta_gp"
#: What the tables of comparisons show: fewer numbers of trials, so that they can be read.
SHORT_TRIALS = (1, 5, 20)
#: What is said above each table of comparisons: experiment → title and text.
SECTIONS = {
    "source_shapes": ("How many source shapes", "The first shapes of the published draw, of the judged device alone."),
    "source_devices": (
        "How many source devices",
        "The judged device is not among them; those with most multiprocessors come first.",
    ),
    "ablations": (
        "What each part is worth",
        "Each row has one part off. `own_device` learns from the judged device alone, `greedy` tries the highest "
        "posterior mean instead of the largest log expected improvement, `exploration_1` does not double the "
        "posterior's standard deviations, and `compiled` has a part more: registers, stack and shared memory as the "
        "compiler tells them.",
    ),
    "means": (
        "Prior means, unseen shapes",
        "`meta_gp` has boosted trees; the others swap them for an ensemble of MLPs and for a kernel regression over "
        "tasks.",
    ),
    "means_unseen_device": ("Prior means, unseen device", "The same on a device that no source task ran on."),
    "compiled_unseen_device": (
        "What the compiler says, unseen device",
        "`compiled` adds registers, stack and shared memory of each build, and how many blocks of it fit a "
        "multiprocessor, to the inputs of the prior mean; compiling needs no GPU.",
    ),
}

WORDS = """\
Efficiency is the best final time of *all* valid configs of a task over the final time of the config that was chosen
by the readings that the run saw. Pairs are mean / worst tenth over the tasks of the validation split. Failed trials
count. No task that is judged is among the sources, and under *unseen device* no task of its device."""
CROSSING = """\
One device is left out of the sources entirely and judged. `uncalibrated` does without the larger residual variance
on a new device, `prior_only` never looks at a reading."""
SURENESS = """\
`z` is (log reading − prediction) / predicted standard deviation, of the trials after the first; of a calibrated
model its standard deviation is 1 and 95 % are within ±1.96. `distance` is the share of its time that the chosen
config would save if it were the best of all: what was said after the last trial, and what it was. `bound held` is
the share of tasks whose distance was within the 95 % bound that was said."""
NOISE = """\
A replayed trial sees one recorded reading, so some choices are wrong by its error, however good the search. *Among all
configs* is a search that has tried everything. *Redrawn* gives every reading a new error, out of those of the same
task's finalists, and chooses again: mean ± standard deviation over 500 such draws."""
FAILURES = """\
The ten tasks with the lowest efficiency after the last trial. `tried` is the best efficiency among the configs that
were tried. Where it is much higher, noise of the readings chose the wrong one; else the search did not come to a
better one."""


def write_page(runs: Runs, docs: Path) -> Path:
    """Write ``results.md`` and its plots.

    Args:
        runs: finished runs of ``experiments.compare``.
        docs: folder of the page.
    """
    docs.mkdir(parents=True, exist_ok=True)
    page = docs / "results.md"
    page.write_text("\n\n".join(_page(runs, docs)) + "\n", encoding="utf-8")
    return page


def _page(runs: Runs, docs: Path) -> Iterator[str]:
    yield "# Results"
    yield _made_how(runs)
    yield WORDS
    headline = {key: path for key, path in runs.items() if key[0] == HEADLINE}
    crossing = {key: path for key, path in runs.items() if key[0] == UNSEEN_DEVICE}
    if headline:
        yield "## Unseen shapes"
        for (_, kernel, device), path in headline.items():
            yield from _unseen_shapes(kernel, device, path, docs)
    if crossing:
        yield "## Unseen shapes on an unseen device"
        yield CROSSING
        yield _crossing(crossing)
    for experiment, (title, text) in SECTIONS.items():
        chosen = {key: path for key, path in runs.items() if key[0] == experiment}
        if chosen:
            yield f"## {title}"
            yield text
            yield _comparison(chosen)
    if headline or crossing:
        yield "## How sure it is"
        yield SURENESS
        yield markdown(_sureness({**headline, **crossing})).rstrip()
    if headline:
        yield "## What the noise of the readings leaves"
        yield NOISE
        yield markdown(_noise(headline)).rstrip()
    for (_, kernel, device), path in headline.items():
        yield f"## Where it fails: {kernel}, {device}"
        yield FAILURES
        yield markdown(worst_tasks(_ours(path))).rstrip()


def _made_how(runs: Runs) -> str:
    records = [json.loads((path / "run.json").read_text(encoding="utf-8")) for path in runs.values()]
    versions = ", ".join(f"{name} {version}" for name, version in records[0]["versions"].items())
    dates = sorted({record["date"] for record in records})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    seconds = sum(record["seconds"] for record in records)
    made = f"{when}, commit {records[0]['commit']}, {versions}"
    paid = f"{len(records)} runs, {seconds / 60:.0f} minutes of one process, training of priors included"
    return f"""\
    python -m experiments.report

wrote this page out of the tables in `data/` ({made}; {paid}). They were recorded on NVIDIA H200; a device with
fewer than 132 SMs is a part of one."""


def _unseen_shapes(kernel: str, device: str, path: Path, docs: Path) -> Iterator[str]:
    studies = _studies(path)
    n_tasks = studies["task"].nunique()
    yield f"### {kernel}, {device}, {n_tasks} shapes"
    efficiency = {
        str(method): summarise(frame)["efficiency"] for method, frame in studies.groupby("method", sort=False)
    }
    yield markdown(summary_frame(efficiency)).rstrip()
    name = f"results_{kernel}.png"
    title = f"{kernel}, {n_tasks} unseen shapes, {device}"
    with plots.figure(docs / name, n_columns=3) as (curve, scatter, ecdf):
        plots.sample_efficiency(mean_curves(studies), curve, title=title)
        plots.efficiency_by_time(studies[studies["method"] == OURS], scatter, title=f"{OURS} after the last trial")
        plots.trials_needed(trials_to(studies, 0.98), ecdf, title="trials to 98 %")
    yield f"![Efficiency of {kernel} against trials, per shape and trials to 98 %]({name})"


def _comparison(runs: Runs) -> str:
    rows = []
    for (_, kernel, device), path in runs.items():
        studies = _studies(path)
        for method, frame in studies.groupby("method", sort=False):
            if method != "random":
                rows.append({"kernel": kernel, "device": device, "method": method, **_short(frame)})
    return markdown(pd.DataFrame(rows)).rstrip()


def _crossing(runs: Runs) -> str:
    """Each device left out, and all their tasks together."""
    rows = []
    for kernel in dict.fromkeys(kernel for _, kernel, _ in runs):
        paths = {device: path for (_, one, device), path in runs.items() if one == kernel}
        frames = {device: _studies(path) for device, path in paths.items()}
        for device, studies in {**frames, "all of them": pd.concat(frames.values())}.items():
            for method, frame in studies.groupby("method", sort=False):
                if method != "random":
                    n_tasks = frame["task"].nunique()
                    rows.append(
                        {"kernel": kernel, "left out": device, "tasks": n_tasks, "method": method, **_short(frame)}
                    )
    return markdown(pd.DataFrame(rows)).rstrip()


def _short(frame: pd.DataFrame) -> dict[str, str]:
    by_trials = summarise(frame)["efficiency"]
    shown = [n for n in SHORT_TRIALS if str(n) in by_trials] or [n for n in REPORTED_TRIALS if str(n) in by_trials]
    return {
        f"{n} trial{'s' if n > 1 else ''}": f"{by_trials[str(n)]['mean']:.3f} / {by_trials[str(n)]['worst_tenth']:.3f}"
        for n in shown
    }


def _sureness(runs: Runs) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for (experiment, kernel, device), path in runs.items():
        setting = "unseen shapes" if experiment == HEADLINE else "unseen device"
        rows.append({"setting": setting, "kernel": kernel, "device": device, **calibration(_ours(path))})
    return pd.DataFrame(rows)


def _noise(runs: Runs) -> pd.DataFrame:
    frames = []
    for (_, kernel, device), path in runs.items():
        record = json.loads((path / "run.json").read_text(encoding="utf-8"))
        spec = load_kernel(OmegaConf.load(path / "cfg.yaml").kernel.name)
        tables = [table for file in record["tables"] for table in read_tables(file, spec)]
        found = noise_table(tables, _ours(path))
        found.insert(0, "kernel", kernel)
        found.insert(1, "device", device)
        frames.append(found)
    return pd.concat(frames)


def _ours(path: Path) -> pd.DataFrame:
    studies = _studies(path)
    return studies[studies["method"] == OURS]


def _studies(path: Path) -> pd.DataFrame:
    return pd.read_parquet(path / "studies.parquet")

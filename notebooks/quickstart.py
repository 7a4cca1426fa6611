# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # bo_tuner in five minutes
#
# A table holds the timings of *every* valid config of some shapes, recorded on a GPU. We load one, tune a shape
# that the prior never saw with twenty trials answered from the table, and look at how close the result is to the best.
#
# Make a notebook of this file with `jupytext --to ipynb notebooks/quickstart.py`.

# %%
import os
from pathlib import Path

import pandas as pd
from IPython.display import Image, display

from bo_tuner import load_kernel, tune
from bo_tuner.analysis import plots
from bo_tuner.analysis.curves import mean_curves
from bo_tuner.commands.figures import mean_random_curve, summary_frame
from bo_tuner.commands.locate import read_split, spread, tables_root
from bo_tuner.evaluators.replay import ReplayEvaluator
from bo_tuner.pretrained import load_prior
from bo_tuner.protocol import summarise, verify
from bo_tuner.searchers import make_searcher

# The tests run this file on small tables of a toy kernel; without these variables it takes the recorded ones.
kernel = os.environ.get("BO_TUNER_KERNEL", "gemm")
data = os.environ.get("BO_TUNER_DATA")
prior_file = os.environ.get("BO_TUNER_PRIOR")

# %% [markdown]
# ## A kernel, its space, its tables

# %%
spec = load_kernel(kernel)
tables = read_split(tables_root(Path(data) if data else None), spec, None, "validation")
table = tables[len(tables) // 2]
print(f"{len(tables)} recorded shapes; {table.task.shape_key} has {len(table):,} valid configs")
print(f"the best takes {table.best_us:.2f} µs, {table.library or 'no library'} takes {table.library_us:.2f} µs")

# %% [markdown]
# ## Twenty trials
#
# The searcher proposes, the evaluator measures. `LiveEvaluator` would time on a GPU; `ReplayEvaluator` answers with a
# recorded reading, noise included.

# %%
prior = load_prior(spec, Path(prior_file) if prior_file else None)
searcher = make_searcher("meta_gp", spec, table.task, seed=0, prior=prior)
study = tune(table.task, searcher, ReplayEvaluator(table), budget=20, method="meta_gp")
study.to_frame()[["trial", "status", "time_us", "compile_s", "config"]]

# %%
best = study.best
assert best is not None
print(best.config)
print(f"efficiency {table.efficiency(table.pool.index(best.config)):.1%} of the best of all configs")

# %% [markdown]
# ## Against random search
#
# `verify` runs a method on many shapes and judges its choice after each trial by the final times. The expectation of
# random search needs no runs: it follows from the table.

# %%
few = spread(tables, 4)
studies = verify(spec, few, "meta_gp", prior=prior, n_trials=20)
summary_frame({"meta_gp": summarise(studies)["efficiency"]})

# %%
random = mean_random_curve(few, 20)
path = Path("outputs") / "quickstart.png"
with plots.figure(path) as (axes,):
    plots.sample_efficiency(mean_curves(studies), axes, random=random, title=f"{spec.name}: 4 shapes")
display(Image(str(path)))

# %% [markdown]
# ## Where to go on
#
# - another acquisition, surrogate or searcher: `python -m experiments.compare experiment=acquisitions`
# - a kernel of your own: CONTRIBUTING.md
# - a GPU: `bo-tuner tune gemm M=512 N=4096 K=4096`

# %%
pd.DataFrame(best.config, index=["chosen"])

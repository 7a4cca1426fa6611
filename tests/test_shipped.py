"""What the repository ships: tables that are whole, priors that fit them, and the claim that the README makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bo_tuner.commands.locate import REPEAT
from bo_tuner.kernels import load_kernel
from bo_tuner.pretrained import load_prior, prior_path
from bo_tuner.protocol import summarise, verify
from bo_tuner.storage.checksums import CHECKSUMS, check_sums
from bo_tuner.storage.tables import check_tables, find_tables, read_frames, read_metadata, read_tables
from bo_tuner.task import device_named

DATA = Path(__file__).parent.parent / "data"
KERNELS = ["gemm", "attention"]


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_tables_are_whole_and_of_this_kernel_source(kernel: str, split: str) -> None:
    spec = load_kernel(kernel)
    for path in find_tables(DATA, kernel, split=split):
        check_tables(path, spec)
        assert read_metadata(path)["source_hash"] == spec.source_hash, f"{path} was recorded with another jit source"


@pytest.mark.parametrize("kernel", KERNELS)
def test_predicted_shared_memory_is_what_the_compiler_took_for_every_recorded_config(kernel: str) -> None:
    spec = load_kernel(kernel)
    path = DATA / kernel / "nvidia_h200" / "validation.parquet"
    rows, _ = read_frames(path, spec)
    for shape, group in rows.groupby(list(spec.shape_keys)):
        task = spec.task(dict(zip(spec.shape_keys, map(int, shape), strict=True)), device_named("nvidia_h200"))
        columns = {  # launch keys, which are null where they have no effect, play no part here
            p.name: group[p.name].fillna(p.values[0]).to_numpy().astype(type(p.values[0]))
            for p in spec.space.parameters
        }
        assert spec.shared_bytes(columns, task).tolist() == group["shared_bytes"].tolist()


@pytest.mark.parametrize("kernel", KERNELS)
def test_priors_were_trained_on_the_train_tables_alone(kernel: str) -> None:
    spec = load_kernel(kernel)
    train = [table.task for path in find_tables(DATA, kernel, split="train") for table in read_tables(path, spec)]
    validation = [
        table.task for path in find_tables(DATA, kernel, split="validation") for table in read_tables(path, spec)
    ]
    assert sorted(load_prior(spec).header["sources"]) == sorted(task.key for task in train)
    assert not {task.shape_key for task in train} & {task.shape_key for task in validation}


@pytest.mark.parametrize("kernel", KERNELS)
def test_twenty_trials_hold_the_claim_on_unseen_shapes(kernel: str) -> None:
    spec = load_kernel(kernel)
    tables = read_tables(DATA / kernel / "nvidia_h200" / "validation.parquet", spec)
    frame = verify(spec, tables[::2], "meta_gp", prior=load_prior(spec), n_trials=20)
    claim = summarise(frame)["efficiency"]["20"]
    assert claim["mean"] >= 0.995
    assert claim["worst_tenth"] >= 0.980


@pytest.mark.parametrize("kernel", KERNELS)
def test_priors_are_light_and_know_how_sure_they_are(kernel: str) -> None:
    spec = load_kernel(kernel)
    assert prior_path(spec).stat().st_size < 5e6
    assert load_prior(spec).distance_factors is not None


def test_the_data_is_what_its_checksums_say() -> None:
    assert check_sums(DATA / CHECKSUMS) == len(list(DATA.rglob("*.parquet")))


def test_a_clone_stays_light() -> None:
    assert sum(file.stat().st_size for file in DATA.rglob("*")) < 30e6


def test_second_recordings_are_of_shapes_of_the_first() -> None:
    for path in (DATA / REPEAT).rglob("validation.parquet"):
        spec = load_kernel(read_metadata(path)["kernel"])
        first = {table.task.key for table in read_tables(DATA / path.relative_to(DATA / REPEAT), spec)}
        again = {table.task.key for table in read_tables(path, spec)}
        assert len(again) == 16
        assert again <= first

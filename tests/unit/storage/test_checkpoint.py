from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from bo_tuner.errors import UserError
from bo_tuner.storage.checkpoint import Checkpoint, read_checkpoint, read_header, write_checkpoint


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "prior.safetensors"
    arrays = {"a": np.arange(6, dtype=np.int64).reshape(2, 3), "b": np.array([1.5, np.nan], dtype=np.float16)}
    write_checkpoint(path, Checkpoint({"kernel": "toy", "list": [1, 2]}, arrays, ["tree", "näxt"]))
    loaded = read_checkpoint(path)
    assert loaded.header["list"] == [1, 2]
    assert list(loaded.texts) == ["tree", "näxt"]
    for name, values in arrays.items():
        np.testing.assert_array_equal(loaded.arrays[name], values)
        assert loaded.arrays[name].dtype == values.dtype
    assert read_header(path)["kernel"] == "toy"
    assert [file.name for file in path.parent.iterdir()] == ["prior.safetensors"]


def test_faults_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_checkpoint(tmp_path / "none")
    junk = tmp_path / "junk.safetensors"
    junk.write_bytes(b"no tensors here, whatever the name says")
    with pytest.raises(UserError, match="cannot be read as a prior") as caught:
        read_checkpoint(junk)
    assert "\n" not in str(caught.value)
    other = tmp_path / "other.safetensors"
    save_file({"a": np.zeros(2)}, other)
    with pytest.raises(UserError, match="format"):
        read_checkpoint(other)

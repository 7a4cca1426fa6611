"""Checksums of a folder of tables."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bo_tuner.errors import UserError
from bo_tuner.storage.checksums import CHECKSUMS, check_sums


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "toy"
    folder.mkdir(parents=True)
    lines = []
    for name in ("train.parquet", "train_tasks.parquet"):
        (folder / name).write_bytes(name.encode())
        lines.append(f"{hashlib.sha256(name.encode()).hexdigest()}  data/toy/{name}\n")
    sums = tmp_path / "data" / CHECKSUMS
    sums.write_text("".join(lines), encoding="utf-8")
    return sums


def test_files_as_listed_are_counted(listed: Path) -> None:
    assert check_sums(listed) == 2


def test_a_list_that_cannot_be_read_is_told_by_its_line(listed: Path) -> None:
    listed.write_bytes(b"abc\n")
    with pytest.raises(UserError, match="line 1: 'abc' is not"):
        check_sums(listed)
    listed.write_bytes(b"\xff" * 64 + b"  x\n")
    with pytest.raises(UserError, match="x: there is no such file"):
        check_sums(listed)


def test_a_changed_a_missing_and_an_unlisted_file_are_named(listed: Path) -> None:
    file = listed.parent / "toy" / "train.parquet"
    file.write_bytes(b"else")
    with pytest.raises(UserError, match=r"data/toy/train.parquet: differs from its checksum"):
        check_sums(listed)
    file.unlink()
    with pytest.raises(UserError, match=r"data/toy/train.parquet: there is no such file"):
        check_sums(listed)
    file.write_bytes(b"train.parquet")
    (file.parent / "more.parquet").write_bytes(b"")
    with pytest.raises(UserError, match=r"data/toy/more.parquet: is not listed"):
        check_sums(listed)

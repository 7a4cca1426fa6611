"""Checksums of a folder of tables, in the format of ``sha256sum``."""

from __future__ import annotations

import hashlib
from pathlib import Path

from bo_tuner.errors import UserError

#: The file's name; what it lists is named from the folder above its own.
CHECKSUMS = "SHA256SUMS"


def check_sums(path: Path) -> int:
    """Compare the files of a folder with its list.

    Args:
        path: the list; each line has a SHA-256 and a file's path from the folder above the list's.

    Returns:
        the number of files.

    Raises:
        UserError: the list cannot be read; a file is missing, differs from it, or is a Parquet file that is not listed.
    """
    root = path.resolve().parent.parent
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    listed = {}
    for number, line in enumerate(lines, start=1):
        digest, _, name = line.partition(" ")
        if len(digest) != 64 or not name.strip():
            raise UserError(f"{path}: line {number}: {line[:40]!r} is not a SHA-256 and a file's path")
        listed[name.strip()] = digest
    for name, digest in listed.items():
        file = root / name.lstrip("*")
        if not file.is_file():
            raise UserError(f"{path}: {name}: there is no such file")
        if hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise UserError(f"{path}: {name}: differs from its checksum")
    for file in sorted(path.resolve().parent.rglob("*.parquet")):
        if str(file.relative_to(root)) not in listed:
            raise UserError(f"{path}: {file.relative_to(root)}: is not listed")
    return len(listed)

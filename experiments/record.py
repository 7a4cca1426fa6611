"""What makes a run traceable: the resolved cfg, the commit, the versions and the checksums of the tables."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import bo_tuner

PACKAGES = ("bo-tuner", "botorch", "gpytorch", "hydra-core", "lightgbm", "numpy", "pandas", "scipy", "torch")

#: The code that decides how a replay goes.
REPLAY = (
    *("surrogates", "kernels", "storage", "searchers", "evaluators"),
    *("acquisition.py", "space.py", "tuner.py", "protocol.py"),
)


def commit(folder: Path) -> str | None:
    """The checked-out commit, with ``+changes`` when files differ from it; None outside a repository."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changes = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("+changes" if changes else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def code_hash(*names: str) -> str:
    """SHA-256 over what some files and folders of the package hold: its code and its priors."""
    package = Path(bo_tuner.__file__).parent
    files = [file for name in names for file in [package / name, *sorted((package / name).rglob("*.py"))]]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files if file.is_file())).hexdigest()


def replay_hash(kernel: str) -> str:
    """SHA-256 over what decides how a replay of a kernel's tables goes, its shipped prior included."""
    return code_hash(*REPLAY, f"pretrained/{kernel}.safetensors")


def versions() -> dict[str, str | None]:
    """Python's version and those of the packages that decide a result; None for one that is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def write_run(folder: Path, kernel: str, tables: Iterable[Path], facts: Mapping[str, Any]) -> None:
    """Write ``run.json``."""
    record = {
        "commit": commit(Path(__file__).parent),
        "kernel": kernel,
        "code": replay_hash(kernel),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions(),
        "tables": {path.as_posix(): checksum(path) for path in sorted(set(tables))},
        **facts,
    }
    (folder / "run.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")

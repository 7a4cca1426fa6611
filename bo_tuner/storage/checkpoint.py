"""One safetensors file a trained prior: compressed arrays and texts, a JSON header. No pickle: loading runs no code."""

from __future__ import annotations

import io
import json
import lzma
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from bo_tuner.errors import UserError

FORMAT = "bo_tuner.prior.3"


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds.

    Args:
        header: JSON-able facts.
        arrays: by name.
        texts: long texts (trees), in order.
    """

    header: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]
    texts: Sequence[str]


def write_checkpoint(path: Path | str, checkpoint: Checkpoint) -> None:
    """Write a file atomically."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {name: _compressed(_array_bytes(values)) for name, values in checkpoint.arrays.items()}
    tensors |= {f"text.{at}": _compressed(text.encode()) for at, text in enumerate(checkpoint.texts)}
    header = json.dumps({**checkpoint.header, "n_texts": len(checkpoint.texts)}, sort_keys=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    partial.write_bytes(save(tensors, metadata={"format": FORMAT, "header": header}))
    partial.replace(path)


def read_header(path: Path | str) -> dict[str, Any]:
    """The header alone.

    Raises:
        UserError: the file is missing or no checkpoint of this format.
    """
    return dict(_read(Path(path), whole=False).header)


def read_checkpoint(path: Path | str) -> Checkpoint:
    """Read a file.

    Raises:
        UserError: the file is missing, damaged or no checkpoint of this format.
    """
    return _read(Path(path), whole=True)


def _read(path: Path, *, whole: bool) -> Checkpoint:
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise UserError(f"{path}: format: {metadata.get('format')} is not {FORMAT}")
            header = json.loads(metadata["header"])
            if not whole:
                return Checkpoint(header, {}, ())
            stored = {name: lzma.decompress(file.get_tensor(name).tobytes()) for name in file.keys()}  # noqa: SIM118
        texts = [stored.pop(f"text.{at}").decode() for at in range(header["n_texts"])]
        arrays = {name: np.load(io.BytesIO(data), allow_pickle=False) for name, data in stored.items()}
    except (SafetensorError, KeyError, ValueError, EOFError, lzma.LZMAError, OSError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: cannot be read as a prior ({str(error).splitlines()[0]})") from None
    return Checkpoint(header, arrays, texts)


def _array_bytes(values: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(values), allow_pickle=False)
    return file.getvalue()


def _compressed(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(lzma.compress(data, preset=9), dtype=np.uint8)

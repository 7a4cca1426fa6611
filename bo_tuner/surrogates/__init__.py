"""Meta-trained and plain Gaussian processes over a pool, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bo_tuner.errors import UserError
from bo_tuner.surrogates.base import Surrogate

__all__ = ["Surrogate", "make_surrogate", "surrogate_names"]


def _meta_gp(**options: Any) -> Surrogate:
    from bo_tuner.surrogates.meta_gp import MetaGP

    return MetaGP(**options)


def _cold_gp(**options: Any) -> Surrogate:
    from bo_tuner.surrogates.cold_gp import ColdGP

    return ColdGP(**options)


_FACTORIES: dict[str, Callable[..., Surrogate]] = {"meta_gp": _meta_gp, "cold_gp": _cold_gp}


def surrogate_names() -> list[str]:
    """Names that :func:`make_surrogate` knows."""
    return sorted(_FACTORIES)


def make_surrogate(name: str, **options: Any) -> Surrogate:
    """A surrogate, not yet meta-trained, with its constructor's options.

    Raises:
        UserError: there is no such surrogate or option.
    """
    if name not in _FACTORIES:
        raise UserError(f"surrogate: {name!r} is not one of {', '.join(surrogate_names())}")
    try:
        return _FACTORIES[name](**options)
    except TypeError as error:
        raise UserError(f"surrogate: {name}: {error}") from None

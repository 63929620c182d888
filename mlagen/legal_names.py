"""Names that somebody gives, held against the legal ones."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

from mlagen.errors import ConfigError


def nearest(name: object, legal: Iterable[str], spelled: Callable[[str], str] = repr) -> str:
    """`did you mean 'kv_block'? `, or nothing where no legal name is near."""
    near = difflib.get_close_matches(str(name), legal, n=1, cutoff=0.5)
    return f"did you mean {spelled(near[0])}? " if near else ""


def require_name(what: str, name: object, legal: Iterable[str]) -> None:
    """Raises ConfigError unless `name` is among `legal`; the hint names the nearest."""
    names = sorted(legal)
    if name in names:
        return
    listed = ", ".join(names) or "none"
    raise ConfigError(f"unknown {what} {name!r}", hint=f"{nearest(name, names)}{what}s: {listed}")

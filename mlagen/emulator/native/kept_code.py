"""numba's cache as a convenience: a folder that cannot be written, a full disk or a damaged file
costs a compilation and nothing else."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from numba.core.caching import FunctionCache, NullCache

LOG = logging.getLogger(__name__)
NO_FOLDER = (
    "neither the folder of its sources nor your cache folder can be written, so each run compiles "
    "again (NUMBA_CACHE_DIR names another folder)"
)
_TOLD: set[str] = set()


def no_folder(error: BaseException) -> bool:
    """Whether numba said that it has no folder to keep code in."""
    return isinstance(error, RuntimeError) and "no locator available" in str(error)


def keep(made: Any, what: str) -> Any:
    """`made`, a dispatcher of numba's, with its code kept where that can be; a warning says of
    `what` where it cannot."""
    try:
        made._cache = _Careful(made.py_func)
    except RuntimeError as error:
        if not no_folder(error):
            raise
        made._cache = _Unkept(what)
    return made


class _Careful(FunctionCache):
    """Code that cannot be read is compiled again and replaced; what cannot be written is left."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # pickle raises whatever a damaged file makes it raise
            LOG.info("kept code cannot be used: %s", error)
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            LOG.info("compiled code is not kept for later runs: %s", error)


def tell_unkept(what: str) -> None:
    """Says that the code of `what` is not kept: why once a process, and each `what` once."""
    if what in _TOLD:
        return
    why = NO_FOLDER if not _TOLD else "nor is its code kept"
    _TOLD.add(what)
    LOG.warning("compiling %s: %s", what, why)


class _Unkept(NullCache):
    """No cache, which is said when `what` is compiled."""

    def __init__(self, what: str) -> None:
        self._what = what

    def load_overload(self, sig: Any, target_context: Any) -> None:
        tell_unkept(self._what)

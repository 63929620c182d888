"""Which HIP runtime library hip-python opens, and that a process has only one.

torch for ROCm brings its own copy of the library. A second copy in the process would not know the
first one's streams: it refuses them as hipErrorContextIsDestroyed (709).
"""

from __future__ import annotations

import ctypes.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlagen.launch.launcher import LaunchRefused

SHORT = "amdhip64"
NAME = f"lib{SHORT}.so"
_MAPS = Path("/proc/self/maps")


def loaded_runtimes() -> tuple[Path, ...]:
    """The HIP runtimes that this process has loaded, torch's for one, in the order of addresses."""
    found: dict[tuple[str, str], Path] = {}  # by device and inode: links are one file
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:  # not Linux
        return ()
    for line in lines:
        fields = line.split(maxsplit=5)  # address, mode, offset, device, inode, path
        if len(fields) == 6 and Path(fields[5]).name.startswith(NAME):
            found.setdefault((fields[3], fields[4]), Path(fields[5]))
    return tuple(found.values())


@contextmanager
def one_runtime() -> Iterator[None]:
    """Within it hip-python opens the runtime that the process already has, where it has one.

    Raises LaunchRefused at the end if the process has two then.
    """
    there = loaded_runtimes()
    if len(there) == 1:
        with _found_at(there[0]):
            yield
    else:
        yield
    there = loaded_runtimes()
    if len(there) > 1:
        raise LaunchRefused(
            f"{len(there)} HIP runtimes are loaded in this process, and one does not know the "
            f"other's streams: {', '.join(map(str, there))}",
            hint=f"$ROCM_PATH, set before Python starts, names the folder whose lib/{NAME} all use",
        )


@contextmanager
def _found_at(path: Path) -> Iterator[None]:
    """Within it hip-python looks for the runtime at `path`. It looks once, at its first call."""
    from rocm.bindings.util import paths

    usual = paths.get_library_path

    def found(shortname: str, *rest: Any, **more: Any) -> bytes:
        return os.fsencode(path) if shortname == SHORT else usual(shortname, *rest, **more)

    paths.get_library_path = found
    try:
        yield
    finally:
        paths.get_library_path = usual


def runtime_path() -> str:
    """Where hip-python would find the runtime; "" where it would not. Nothing is loaded.

    Without hip-python: where the system's loader would.
    """
    if there := loaded_runtimes():
        return str(there[0])
    try:
        from rocm.bindings.util.paths import get_library_path
    except ImportError:
        named = Path(NAME)
    else:
        named = Path(os.fsdecode(get_library_path(SHORT)))
    if named.is_absolute():
        return str(named)
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if folder and (Path(folder) / NAME).exists():
            return str(Path(folder) / NAME)
    return ctypes.util.find_library(SHORT) or ""

"""Which code judged: a verdict counts for the code that it was made with."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import mlagen
from mlagen.disk import read_file

# Whatever decides what is built, whether it is right and what it costs.
_PARTS = (
    "artifact", "attention", "binary", "codegen", "dsl", "emulator", "families", "family", "launch",
    "ops", "problem", "schedules", "targets", "templates", "timing", "verify",
)  # fmt: skip
_SUFFIXES = {".py", ".j2"}


@cache
def code_digest(own: Path | None = None) -> str:
    """A hash of mlagen's code, and of a schedule file of the user's with what lies beside it."""
    root = Path(mlagen.__file__).parent
    state = hashlib.sha256()
    folders = [root / part for part in _PARTS]
    files = [file for folder in folders for file in sorted(folder.resolve().rglob("*"))]
    if own is not None:
        files += sorted(own.resolve().parent.glob("*.py"))
    for file in files:
        if file.suffix in _SUFFIXES and file.is_file():
            state.update(file.name.encode())
            state.update(hashlib.sha256(read_file(file)).digest())
    return state.hexdigest()[:16]


def code_of(kernel: str) -> str:
    """The digest that counts for a kernel, a name or a file."""
    return code_digest(Path(kernel.partition(".py")[0] + ".py") if ".py" in kernel else None)


def versions(kernel: str, tools: Mapping[str, str] | None = None) -> dict[str, str]:
    """Versions that a record carries. `code` is what makes verdicts comparable; `tools`: of the
    artifact, where there is one."""
    return {
        "mlagen": mlagen.__version__,
        "code": code_of(kernel),
        "python": platform.python_version(),
        **(tools or {}),
    }

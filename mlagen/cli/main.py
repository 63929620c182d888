"""`mlagen`: how a command begins and ends. Nothing heavy is imported before an interrupt is caught.

Exit codes: 0 ok, 2 usage or refused, 3 wrong result, 4 findings, 5 a tool or an input is missing
or an output cannot be written, 6 nothing wrong was found but not all was checked, 130 interrupted.
Anything else is a defect of mlagen.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130

# The oracles multiply small matrices: BLAS threads only spin against the emulator's.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code; what goes wrong prints a line, and no
    traceback but that of a defect."""
    try:
        from mlagen.cli.ending import ended

        return ended(arguments)
    except KeyboardInterrupt:
        # After ^C the terminal's cursor stands in the line.
        start = "\n" if sys.stderr.isatty() else ""
        print(f"{start}error: interrupted", file=sys.stderr)
        return INTERRUPTED


def _bound_memory() -> None:
    """What takes more memory than this machine has free ends in an error of its own, and not in a
    process that the system chooses to kill. Drivers of GPUs reserve more than there is."""
    if sys.argv[1:2] in (["bench"], ["tune"]):
        return
    try:
        import resource

        from mlagen.room import free_bytes

        free = free_bytes()
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        if free is not None and (most == resource.RLIM_INFINITY or free < most):
            resource.setrlimit(resource.RLIMIT_DATA, (free, most))
    except (ImportError, OSError, ValueError):  # another system than Linux
        return


def main() -> None:
    """Entry point of the `mlagen` script."""
    # The first that is registered is called last, when all others have tidied up. An interrupt in
    # some parts of imports would make the interpreter itself end by the signal, whatever the code.
    codes: list[int] = []
    atexit.register(lambda: os._exit(INTERRUPTED) if INTERRUPTED in codes else None)
    try:
        from mlagen.cli.streams import guarded

        _bound_memory()
    except KeyboardInterrupt:
        codes.append(INTERRUPTED)
    else:
        codes.append(guarded(run))
    sys.exit(codes[0])

"""Standard output and error of a process, whatever is at their other end.

What a reader that has left does not take (`mlagen list | head`) is dropped: the command goes on,
its files are written, and its exit code is that of its result.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO


class _Output(io.FileIO):
    """A stream that never fails. `why`: what kept it from writing, but for a reader that left."""

    why: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            pass
        except OSError as error:
            self.why = error
        return memoryview(data).nbytes


def guarded(run: Callable[[], int]) -> int:
    """The exit code of `run`; 5 where its result is good and could not be told."""
    if sys.stderr is None:  # 2>&-
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    if sys.stdout is None:  # >&-
        print("error: standard output is closed\n  hint: >/dev/null drops it", file=sys.stderr)
        return 5
    raw, sys.stdout = _wrapped(sys.stdout)
    _, sys.stderr = _wrapped(sys.stderr)
    code = run()
    sys.stdout.flush()
    if raw.why is not None:
        print(f"error: standard output cannot be written: {raw.why.strerror}", file=sys.stderr)
    return code or (0 if raw.why is None else 5)


def _wrapped(stream: TextIO) -> tuple[_Output, TextIO]:
    stream.flush()
    raw = _Output(stream.fileno(), "w", closefd=False)
    return raw, io.TextIOWrapper(
        io.BufferedWriter(raw), stream.encoding, "backslashreplace",
        line_buffering=stream is sys.stderr or raw.isatty(),
    )  # fmt: skip

"""What a command is doing, on stderr, while it takes time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mlagen.cli import terminal
from mlagen.cli.printing import say
from mlagen.untrusted import printable

Progress = Callable[[int, int], None]

_TITLE = 44  # letters of a step in a bar
_PATIENCE = 0.5  # seconds before a bar shows: short steps do not flicker


class ProgressBar:
    """A callback (done, total); `count(n)` where nobody knows how many there will be."""

    def __init__(self, bar: Any, task: Any) -> None:
        self._bar, self._task = bar, task

    def __call__(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)

    def say(self, text: str) -> None:
        """How far it is, in words."""
        self._bar.update(self._task, count=text)

    def count(self, executed: int) -> None:
        """So many wave-instructions were executed."""
        self.say(f"{executed / 1e6:.1f} M wave-instructions")


@contextmanager
def progress_bar(title: str, *, long: bool = False) -> Iterator[ProgressBar | None]:
    """While the body runs, says on stderr what it does. On a terminal that is a bar with the time,
    from half a second on; elsewhere a line where the step is known to take over 10 s (`long`). The
    body gets a progress callback (done, total), and None where there is no bar. -v tells the time.
    """
    started = time.perf_counter()
    try:
        if terminal.live():
            with _shown(title) as bar:
                yield bar
        else:
            if long and terminal.verbosity() is not terminal.Verbosity.QUIET:
                say(f"{title} …", err=True)
            yield None
    finally:
        terminal.note(f"{title}: {time.perf_counter() - started:.2f} s")


@contextmanager
def _shown(title: str) -> Iterator[ProgressBar]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    class Left(TextColumn):
        """The time left, once it is known."""

        def render(self, task: Any) -> Any:
            left = task.time_remaining
            task.fields["left"] = "" if left is None else f"{left // 60:.0f}:{left % 60:02.0f} left"
            return super().render(task)

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
        Left("{task.fields[left]}"),
    )
    console = Console(stderr=True, no_color=not terminal.colours(err=True))
    bar = Progress(*columns, console=console, transient=True)
    short = title if len(title) <= _TITLE else f"{title[: _TITLE - 1]}…"
    task = bar.add_task(printable(short), total=None, count="", left="")
    later = threading.Timer(_PATIENCE, bar.start)
    later.daemon = True
    later.start()
    try:
        yield ProgressBar(bar, task)
    finally:
        later.cancel()
        later.join()
        bar.stop()

"""Where trials run: something that takes jobs and hands back outcomes, in whatever order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from mlagen.errors import MlagenError
from mlagen.tune.sandbox import Died, Killed, Sandbox, TimedOut
from mlagen.tune.values import TrialJob, TrialOutcome

Judge = Callable[[TrialJob], TrialOutcome]
_Ended = TypeVar("_Ended")
_TURNS = 2  # times that a trial is begun whose process is killed


class Workers(Protocol):
    """A place for trials."""

    @property
    def slots(self) -> int:
        """Trials that it can work on at once, now."""
        ...

    def ask(self, function: Callable[..., Any], *arguments: Any, limit: float) -> Any:
        """`function(*arguments)` where trials run, in a process of its own. Raises what it does."""
        ...

    def submit(self, number: int, job: TrialJob) -> None:
        """Begin a trial, known by its number."""
        ...

    def finished(self, timeout: float) -> Iterator[tuple[int, TrialOutcome]]:
        """Those that have ended since, waiting `timeout` seconds for the first."""
        ...

    def close(self) -> None:
        """End everything, running trials too."""
        ...


def judged(sandbox: Sandbox, stage: Callable[..., Any], *arguments: Any, limit: float) -> Any:
    """What a stage of judging returns: an outcome, whatever happens to its process, or something
    for the next stage. A process that was killed, or ran out of memory, is begun once more: then
    the trial is lost, which says nothing of the variant."""
    why = ""
    for _ in range(_TURNS):
        try:
            return sandbox.call(stage, *arguments, limit=limit)
        except Killed as error:
            why = error.message
        except MemoryError:
            why = "it ran out of memory"
        except TimedOut as error:
            return TrialOutcome("timeout", message=error.message)
        except Died as error:
            return TrialOutcome("crashed", message=error.message)
        except MlagenError as error:
            return TrialOutcome("error", message=error.message)
        except Exception as error:
            return TrialOutcome("error", message=f"{type(error).__name__}: {error}")
    return TrialOutcome("lost", message=why)


def drained(done: queue.SimpleQueue[_Ended], timeout: float) -> Iterator[_Ended]:
    """What a queue holds, waiting `timeout` seconds for the first."""
    with suppress(queue.Empty):
        yield done.get(timeout=timeout)
        while True:
            yield done.get_nowait()


class LocalWorkers:
    """`count` trials at a time on this machine, each in a process of its own."""

    def __init__(
        self, count: int, judge: Judge, limit: float, warm: Callable[[], Any] | None = None
    ) -> None:
        self._jobs: queue.SimpleQueue[tuple[int, TrialJob] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[int, TrialOutcome]] = queue.SimpleQueue()
        self._sandboxes = [Sandbox(warm) for _ in range(count)]
        self._closing = False
        self._threads = [
            threading.Thread(target=self._work, args=(box, judge, limit), daemon=True)
            for box in self._sandboxes
        ]
        for thread in self._threads:
            thread.start()

    @property
    def slots(self) -> int:
        return len(self._sandboxes)

    def _work(self, sandbox: Sandbox, judge: Judge, limit: float) -> None:
        while (item := self._jobs.get()) is not None:
            number, job = item
            outcome = judged(sandbox, judge, job, limit=limit)
            if not self._closing:
                self._done.put((number, outcome))

    def ask(self, function: Callable[..., Any], *arguments: Any, limit: float) -> Any:
        sandbox = Sandbox()
        try:
            return sandbox.call(function, *arguments, limit=limit)
        finally:
            sandbox.close()

    def submit(self, number: int, job: TrialJob) -> None:
        self._jobs.put((number, job))

    def finished(self, timeout: float) -> Iterator[tuple[int, TrialOutcome]]:
        return drained(self._done, timeout)

    def close(self) -> None:
        self._closing = True
        for _ in self._threads:
            self._jobs.put(None)
        for sandbox in self._sandboxes:
            sandbox.close()
        for thread in self._threads:
            thread.join(timeout=10)

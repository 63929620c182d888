"""Files judged by several processes, in the order given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from mlagen.cli.progress import progress_bar
from mlagen.processes import working

Work = TypeVar("Work")
Result = TypeVar("Result")


def side_by_side(
    judge: Callable[[Work], Result], work: Sequence[Work], jobs: int, title: str
) -> Iterator[Result]:
    """What `judge` gives of each piece of work, with a bar of that title."""
    with (
        ProcessPoolExecutor(min(jobs, len(work))) as pool,
        progress_bar(title) as progress,
        working(pool, judge, work) as futures,
    ):
        for number, future in enumerate(futures):
            yield future.result()
            if progress:
                progress(number + 1, len(work))

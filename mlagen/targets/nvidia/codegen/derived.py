"""Operations that are derived: waits, arrivals, commits, fences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlagen.dsl import Operation, Value
from mlagen.targets.nvidia.dsl.smem import Pipeline

FENCES = {
    "fence_before": "tcgen05.fence::before_thread_sync",
    "fence_after": "tcgen05.fence::after_thread_sync",
}
# All of their names.
WAITS = (
    "wait_full", "wait_empty", "sync", "arrive_and_wait", "arrive", "commit", "wait_committed",
    "arrive_full", "free", *FENCES,
)  # fmt: skip


def derived(
    at: Operation, name: str, block: str, context: dict[str, Any], template: str = ""
) -> Operation:
    """The derived operation `name`, told for the line and the tile of the operation `at`. `block`:
    what it is of, "" for nothing."""
    return replace(
        at,
        name=name,
        template=f"pipeline/{template or name}.ptx.j2",
        context=lambda _: context,
        defines=(),
        uses=(Value(block, at.tile),) if block else (),
        access=None,
        domain="every",
        first_differs=False,
        guarded=False,
        asynchronous=False,
        joins=False,
    )


def wait_for(user: Operation, pipeline: Pipeline, what: str) -> Operation:
    """The wait for `pipeline`'s barrier before `user`."""
    full = what == "full"
    context = {
        "barrier": pipeline.full if full else pipeline.empty, "fence": full and unfenced(pipeline)
    }  # fmt: skip
    return derived(user, f"wait_{what}", pipeline.name, context, "wait")


def unfenced(pipeline: Pipeline) -> bool:
    """Whether who waits for it fences: what ordinary instructions wrote went through another proxy
    than the one that products read."""
    return pipeline.producer_threads > 0 and not pipeline.fenced


def names_of(operation: Operation) -> set[str]:
    """Pipelines, exchanges, regions and register blocks that the operation touches."""
    found = {value.block for value in (*operation.uses, *operation.defines)}
    if operation.access is not None:
        found.add(operation.access.target.ring)
    return found

"""The plain order of swap-AB kernels, which their tables rearrange: one tile after another, and one
role at a time.
"""

from __future__ import annotations

from typing import Protocol

from mlagen.attention.latent.sm_90a.swap_ab.k_in_registers import KInRegisters
from mlagen.attention.latent.sm_90a.swap_ab.products import Bf16, E4m3, Grouped
from mlagen.attention.latent.sm_90a.swap_ab.queries import SwapAbQueries
from mlagen.attention.latent.sm_90a.swap_ab.split_roles import (
    FromRegisters,
    KeyScales,
    OrderedQueries,
)
from mlagen.attention.latent.sm_90a.swap_ab.storage import DequantizedKeys, StoredKeys
from mlagen.dsl import PipelineOrder, by
from mlagen.targets.nvidia.dsl import WarpRole


class ListSteps(Protocol):
    """How a tile's list is loaded: `steps`."""

    @property
    def steps(self) -> tuple[str, ...]: ...


class Fetching(Protocol):
    """How listed rows are fetched: `second` before all columns, `after` some of them, `first` and
    `last` after all."""

    second: tuple[str, ...]
    first: tuple[str, ...]

    @property
    def last(self) -> tuple[str, ...]: ...

    def after(self, box: int) -> tuple[str, ...]: ...


class Groups(Protocol):
    """How keys of a group come: what is done `before` they are in SMEM."""

    before: tuple[str, ...]


def copies(storage: StoredKeys | DequantizedKeys) -> list[str]:
    """How a tile's columns come."""
    return [f"copy {pipeline.name}" for pipeline in storage.arriving]


def swap_ab_order(
    producer: WarpRole,
    queries: SwapAbQueries,
    storage: StoredKeys | DequantizedKeys,
    products: Bf16 | E4m3,
) -> PipelineOrder:
    """Of kernels whose one warpgroup has S and O."""
    math, fetches = queries.kernel.math.name, producer.name
    dequant = [storage.dequant.name] if isinstance(storage, DequantizedKeys) else []
    return PipelineOrder(
        before=(*by(fetches, "setup"), *(part for name in dequant for part in by(name, "setup")),
                *by(math, "setup", "clear")),
        tiles=(
            *by(fetches, *queries.loads, *copies(storage), "look_up"),
            *storage.steps,
            *by(math, *queries.reads, *products.of_scores, "softmax",
                *(("zero_tail",) if storage.cleans else ()), "rescale", *products.of_values,
                *storage.keys.releases),
        ),
        after=by(math, "store_sum", "finish"),
        hints=frozenset({"prefetch"}),
    )  # fmt: skip


def split_roles_order(
    producer: WarpRole, queries: OrderedQueries, scales: KeyScales, storage: StoredKeys,
    products: FromRegisters,
) -> PipelineOrder:  # fmt: skip
    """Of kernels one of whose warpgroups has S, and the other one O."""
    kernel, fetches = queries.kernel, producer.name
    scores, math = kernel.scores.name, kernel.math.name
    return PipelineOrder(
        before=(*by(fetches, "setup"), *by(scores, "setup", "clear"), *by(math, "setup", "clear")),
        tiles=(
            *by(fetches, *queries.queries.loads, *copies(storage), "look_up"),
            *by(scores, *queries.reads, *scales.steps, *products.of_scores, "softmax",
                *storage.keys.releases),
            *by(math, "rescale", *products.of_values, "is_read", *storage.keys.releases),
            *by(scores, "wait_read"),
        ),
        after=(*by(scores, "store_sum", "hand_sums"), *by(math, "finish")),
        hints=frozenset({"prefetch"}),
    )  # fmt: skip


def k_in_registers_order(
    rows: ListSteps, fetching: Fetching, products: KInRegisters
) -> PipelineOrder:
    """Of kernels with K in registers. Where scales lie elsewhere than rows it takes places of rows
    to load them: a tile's list is looked up when the rows of the one before are fetched."""
    scales, name, boxes = products.scales, products.kernel.math.name, []
    stored = products.keys.stored
    early = stored.scales != "none" and stored.scales_at is None
    for box in products.keys.boxes:
        boxes += [*scales.before(box), f"convert {box}", f"qk {box}"]
        boxes += [f"store_values {box}"] if products.valued(box) else []
        boxes += fetching.after(box)
    boxes += [*scales.before(None), *fetching.first, *fetching.last]
    parts = range(len(products.parts))
    return PipelineOrder(
        before=by(name, "setup", "clear", "fetch_first"),
        tiles=by(
            name, "load_queries", *fetching.second, "locate", "look_up",
            *(f"free_values {part}" for part in parts),
            *((*boxes, *rows.steps) if early else (*rows.steps, *boxes)),
            "softmax", "rescale", *(f"pv {part}" for part in parts),
        ),
        after=by(name, "store_sum", *scales.at_last, "finish"),
    )  # fmt: skip


def gathered_order(storage: Groups, products: Grouped) -> PipelineOrder:
    """Of kernels whose warpgroup gathers keys for itself, in groups."""
    name, names = products.kernel.math.name, [group.name for group in products.groups]
    steps = (f"{step} {group}" for group in names for step in (*storage.before, "copy"))
    return PipelineOrder(
        before=by(name, "setup", "clear"),
        tiles=by(name, "load_queries", *steps, "look_up", "qk", "softmax", "rescale",
                 *(f"pv {group}" for group in names)),
        after=by(name, "store_sum", "finish"),
    )  # fmt: skip

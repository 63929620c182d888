"""Merging split MLA decode work as a kind of problem that can be verified."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.attention.latent.attended import Attended
from mlagen.attention.latent.block_sizes import BLOCK_ROWS, MERGE_INTS
from mlagen.attention.latent.sink import with_sink
from mlagen.attention.latent.splits import merged
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.plan import MlaDecodeWork, plan_work
from mlagen.families.mla_decode.problem import TILE, MlaDecodeConfig
from mlagen.families.mla_decode.unit import HOPPER
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.families.split_merge.facts import facts_of
from mlagen.family.covering import Call, Covering
from mlagen.family.kinds import Chosen, ProblemKind, Size, Trial
from mlagen.launch import Launcher, LaunchReport
from mlagen.problem.arrays import untouched
from mlagen.problem.expected import Expected, Worst
from mlagen.problem.formats import ELEMENT_TYPES

Array = npt.NDArray[Any]
MOST = 4096  # parts of a sequence
SLOT_ROWS = (BLOCK_ROWS, 2 * BLOCK_ROWS)
EMPTY_MERGES = 2  # that a launch has behind its own
EMPTY_LSE = 0x7F800000  # +inf: that the number of the call is taken shows by no merge's making it


@dataclass(frozen=True, eq=False)
class MlaDecodeMergeInputs:
    """Parts of sequences of one new token each: `partial_o` fp32 [slots, 64, 512] and `partial_lse`
    fp32 [slots, 64] in log2 units (or with `slot_rows` of the work rows), the `work` that left
    them, and of a problem with sinks `sink` fp32 [num_heads], in natural units."""

    config: MlaDecodeMergeConfig
    partials: tuple[int, ...]
    work: MlaDecodeWork
    partial_o: npt.NDArray[np.float32]
    partial_lse: npt.NDArray[np.float32]
    sink: npt.NDArray[np.float32] | None = None


def mla_decode_merge_inputs(
    config: MlaDecodeMergeConfig,
    *,
    partials: tuple[int, ...],
    data: str,
    seed: int,
    slot_rows: int = BLOCK_ROWS,
    only: Collection[int] | None = None,
) -> MlaDecodeMergeInputs:
    """Made-up parts, `partials` of each sequence. A fifth of the rows of "realistic" ones saw no
    key, and hold NaN; in "unseen" no row of a third of the sequences' rows saw any, and half of the
    sinks are infinite. Sinks are about as far from 0 as the LSE, so that most draw weight and leave
    some. `only`: the merges whose parts hold something; all others are `untouched`."""
    if not partials or not all(2 <= count <= MOST for count in partials):
        raise ConfigError(
            f"partials={list(partials)}", hint=f"of each sequence, 2 to {MOST}: one is not merged"
        )
    rng = np.random.default_rng([seed, *data.encode()])
    whole = MlaDecodeConfig(config.num_heads, output_dtype=config.output_dtype)
    unit = replace(HOPPER, rows=slot_rows)
    work = plan_work(whole, [TILE * count for count in partials], split_keys=TILE, unit=unit)
    room = np.empty if only is None else untouched
    partial_o = room((work.slots, slot_rows, config.d_v), np.float32)
    partial_lse = room((work.slots, slot_rows), np.float32)
    for slots in [slice(None)] if only is None else [_slots(work, merge) for merge in only]:
        lse = partial_lse[slots]
        partial_o[slots] = rng.standard_normal(partial_o[slots].shape)
        lse[...] = 4 * rng.standard_normal(lse.shape)
        nothing = rng.random(lse.shape) < 0.2
        if data == "unseen":
            nothing[:, ::3] = True
        lse[nothing], partial_o[slots][nothing] = -np.inf, np.nan
    sink = None
    if config.sink:
        sink = (4 * rng.standard_normal(config.num_heads)).astype(np.float32)
        if data == "unseen":
            sink[0::4], sink[1::4] = -np.inf, np.inf
    return MlaDecodeMergeInputs(config, partials, work, partial_o, partial_lse, sink)


def _slots(work: MlaDecodeWork, merge: int) -> slice:
    """The slots of what a merge adds up."""
    first, count = work.merges[merge, :2].tolist()
    return slice(first, first + count)


@dataclass(frozen=True)
class MlaDecodeMergeTrial(Trial):
    """A call of a merge kernel. One oracle: parts are given as they are, so that all that a kernel
    rounds is fp32, and the exact one's bound holds nothing else."""

    inputs: MlaDecodeMergeInputs
    running: bool = False

    @property
    def sizes(self) -> Mapping[str, Size]:
        return {"partials": self.inputs.partials, "slot_rows": self.inputs.work.slot_rows}

    def planned(self, artifact: Artifact) -> MlaDecodeMergeTrial:
        return replace(self, running=facts_of(artifact).running)

    def oracles(self) -> tuple[Expected, ...]:
        inputs = self.inputs
        shape = (len(inputs.partials), 1, inputs.config.num_heads)
        flat = (math.prod(shape), inputs.config.d_v)
        values, bounds = np.zeros(flat), np.zeros(flat)
        lse, lse_bounds = np.zeros(flat[0]), np.zeros(flat[0])
        for slot, count, first, rows, above in np.unique(inputs.work.merges[:, :5], axis=0):
            at = slice(first, first + rows)
            found = merged(
                [
                    (
                        np.nan_to_num(inputs.partial_o[part, :rows].astype(np.float64)),
                        np.zeros((rows, inputs.config.d_v)),
                        inputs.partial_lse[part, :rows].astype(np.float64) * math.log(2.0),
                        np.zeros(rows),
                    )
                    for part in range(slot, slot + count)
                ],
                running=self.running,
            )
            values[at], bounds[at], lse[at], lse_bounds[at] = found
            if inputs.sink is not None:
                whole = Attended(found, top=found[2], top_bound=found[3])
                head = (above + np.arange(rows)) % inputs.config.num_heads
                own = inputs.sink[head].astype(np.float64)
                values[at], bounds[at] = with_sink(whole, own, merged=True)
        tokens, heads = np.arange(1), np.arange(inputs.config.num_heads)
        return tuple(
            Expected(name, found.reshape(*shape, -1), error.reshape(*shape, -1), tokens, heads,
                     output=output)
            for name, found, error, output in (
                ("exact", values, bounds, "o"), ("exact LSE", lse, lse_bounds, "lse"),
            )
        )  # fmt: skip

    def run(
        self, artifact: Artifact, launcher: Launcher
    ) -> tuple[Mapping[str, Array], LaunchReport]:
        """From poisoned memory; merges of no row, of no and of one part, write nothing."""
        inputs = self.inputs
        shape = (len(inputs.partials), 1, inputs.config.num_heads)
        kind = ELEMENT_TYPES[inputs.config.output_dtype]
        o = np.full((math.prod(shape), inputs.config.d_v), np.nan, kind)
        lse = np.full(math.prod(shape), np.nan, np.float32)
        empty = np.zeros((EMPTY_MERGES, MERGE_INTS), np.int32)
        empty[1, 1] = 1
        merges = np.concatenate([inputs.work.merges, empty])
        tensors: dict[str, Array] = {
            "merges": merges, "partial_o": inputs.partial_o, "partial_lse": inputs.partial_lse,
            "o": o, "lse": lse,
        }  # fmt: skip
        numbers = {"lse_stride": inputs.work.lse_stride}
        own = facts_of(artifact).slot_rows
        if not own:
            numbers["slot_rows"] = inputs.work.slot_rows
        elif inputs.work.slot_rows != own:
            raise ConfigError(
                f"slot_rows={inputs.work.slot_rows}: {artifact.manifest.kernel} merges parts of "
                f"{own} rows"
            )
        if inputs.sink is not None:
            tensors["sink"], numbers["empty_lse"] = inputs.sink, EMPTY_LSE
        report = launcher.launch(
            artifact, tensors=tensors, scalars=numbers, sizes={"merges": len(merges)}
        )
        if inputs.sink is not None:
            lse = _without_keys(lse)
        return {"o": o.reshape(*shape, -1), "lse": lse.reshape(*shape, 1)}, report

    def place(self, worst: Worst) -> str:
        where = f"sequence {worst.batch}, head {worst.head}"
        return f"LSE of {where}" if worst.output == "lse" else f"{where}, column {worst.depth}"


def _without_keys(lse: Array) -> Array:
    """LSE as oracles have it: -inf where there is `EMPTY_LSE`, and NaN where there is -inf."""
    given = np.where(np.isneginf(lse), np.float32(np.nan), lse)
    return np.where(lse.view(np.uint32) == EMPTY_LSE, np.float32(-np.inf), given)


class MlaDecodeMergeKind(ProblemKind):
    """Inputs from `mla_decode_merge_inputs`."""

    sizes = ("partials", "slot_rows")
    lists = ("partials",)
    data = ("realistic", "unseen")
    uneven: ClassVar[Mapping[str, Any]] = {"partials": (3, 7)}

    def inputs(
        self, problem: Mapping[str, Any], *, data: str, seed: int, **shape: Any
    ) -> MlaDecodeMergeInputs:
        if data not in self.data:
            raise ConfigError(f"unknown data {data!r}", hint=f"data: {', '.join(self.data)}")
        partials = shape.pop("partials", (3, 7))
        slot_rows = shape.pop("slot_rows", BLOCK_ROWS)
        only = shape.pop("only", None)
        if shape:
            raise ConfigError(f"unknown sizes {', '.join(shape)}", hint="partials, slot_rows")
        if slot_rows not in SLOT_ROWS:
            raise ConfigError(f"slot_rows={slot_rows}", hint="rows of a part: 64 or 128")
        partials = (partials,) if isinstance(partials, int) else tuple(partials)
        config = MlaDecodeMergeConfig.from_fields(problem)
        return mla_decode_merge_inputs(
            config, partials=partials, data=data, seed=seed, slot_rows=slot_rows, only=only
        )

    def simulated(
        self, artifact: Artifact, chosen: Chosen, *, seed: int, **shape: Any
    ) -> MlaDecodeMergeInputs:
        made = self.made(artifact, data="realistic", seed=seed, **shape, only=())
        merges = len(made.work.merges)
        groups = chosen(artifact.manifest.grid_for({"merges": merges + EMPTY_MERGES}))
        only = [group[0] for group in groups if group[0] < merges]
        return self.made(artifact, data="realistic", seed=seed, **shape, only=only)

    def trial(self, inputs: MlaDecodeMergeInputs) -> MlaDecodeMergeTrial:
        return MlaDecodeMergeTrial(inputs)

    def covering(self, artifact: Artifact) -> Covering:
        """Sequences of as many parts as one, two, four and eight warps share, and of more."""
        shape: dict[str, Any] = {"partials": (2, 4, 7, 11, 25, 70)}
        if not facts_of(artifact).slot_rows:
            shape["slot_rows"] = 2 * BLOCK_ROWS
        return Covering(tuple(Call(data, shape) for data in self.data))


KIND = MlaDecodeMergeKind()

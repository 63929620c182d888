"""Kernels' PTX in the emulator, for tests of their numbers: parameters by name, every finding a
failure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from mlagen.emulator import Argument, Buffer, EmulationResult, Launch, Settings, TensorMap, emulate
from mlagen.emulator.ptx.host.entries import parameter_places
from mlagen.ptx import read_ptx

DTYPES = {np.dtype(ml_dtypes.bfloat16): "bf16", np.dtype(np.float32): "f32"}
SMEM = 232448
MAP_BYTES = 128


@dataclass
class Map:
    """A tensor map: `array` [rows, cols], read in boxes of `box_rows` x 128 bytes."""

    array: Any
    box_rows: int

    def made(self, buffer: Buffer) -> TensorMap:
        rows, cols = self.array.shape
        size = self.array.dtype.itemsize
        return TensorMap(
            buffer, DTYPES.get(self.array.dtype, "u8"), (cols, rows), (cols * size,),
            (128 // size, self.box_rows), swizzle="128B",
        )  # fmt: skip


# What launchers count, of which array.
COUNTS = {
    "sequence_count": ("cache_lengths", len),
    "row_count": ("lse", np.size),
    "item_count": ("items", len),
}


def counted(places: Iterable[str], arguments: Mapping[str, Any]) -> dict[str, int]:
    """What launchers count for a kernel with these parameters."""
    found = {
        name: int(count(arguments[of])) for name, (of, count) in COUNTS.items() if name in places
    }
    if "slot_count" in places:
        parts = "arrivals" in places
        found["slot_count"] = len(arguments["arrivals"]) // 2 if parts else len(
            arguments["partial_lse"]
        )  # fmt: skip
    return found


def run(
    text: str,
    grid: tuple[int, int],
    arguments: Mapping[str, Any],
    *,
    only: Sequence[tuple[int, int]] | None = None,
    settings: Settings | None = None,
    tolerated: Sequence[str] = (),
) -> EmulationResult:
    """Runs the text's kernel; arrays of `arguments` are read and written in place. AssertionError
    for a finding of a kind that is not `tolerated`."""
    module = read_ptx(text)
    entry = module.entries[0]
    places, _ = parameter_places(entry)
    arguments = {**counted(places, arguments), **arguments}
    assert set(places) == set(arguments), set(places) ^ set(arguments)
    buffers: dict[int, Buffer] = {}

    def buffer(name: str, array: Any) -> Buffer:
        return buffers.setdefault(id(array), Buffer(name, array))

    made = []
    for parameter in entry.parameters:
        value = arguments[parameter.name]
        if isinstance(value, Map):
            array = np.ascontiguousarray(value.array)
            value = value.made(buffer(parameter.name, array))
        elif isinstance(value, np.ndarray):
            value = buffer(parameter.name, value)
        elif not isinstance(value, np.generic):
            value = np.uint32(value)
        made.append(Argument(places[parameter.name], value))
    dynamic = SMEM if any(not v.size for v in entry.shared) else 0
    block = (*entry.block, 1, 1)[:3]
    result = emulate(
        module,
        Launch((*grid, 1), block, made, dynamic_shared=dynamic),
        settings or Settings(workgroups=[(*at, 0) for at in only] if only else None, exact=False),
    )
    found = [finding for finding in result.findings if finding.kind not in tolerated]
    assert not found, "\n".join(map(str, found))
    return result

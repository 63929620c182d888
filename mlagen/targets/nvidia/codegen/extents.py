"""Checks that what printed lines touch ends where it was declared to end, for kernels of anybody.

Operations state extents themselves (`mlagen.dsl.extents`). What instructions say by themselves is
read from their lines besides: how many rows of an operand in shared memory a product reads, which
columns of tensor memory it and loads and stores touch, and the bytes of a box that one thread
fetches. Addresses that are not known here are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mlagen.artifact.manifest import DTYPE_BYTES
from mlagen.dsl import Binding, Operation
from mlagen.targets.nvidia.dsl import PipelineSchedule
from mlagen.targets.nvidia.dsl.smem import TmaTile

LANE = 1 << 16  # of an address of tensor memory
A_COLUMNS = 8  # 32 bytes of each row, what a product reads of A in tensor memory
SHAPES = {"32x32b": 1, "16x64b": 2, "16x128b": 4, "16x256b": 8}  # columns of x1, by 32 bits
_WGMMA = re.compile(r"m64n(\d+)k\d+")
_MOVED = re.compile(r"tcgen05\.(?:ld|st)\.sync\.aligned\.(\w+)\.x(\d+)")
_COPIED = re.compile(r"tcgen05\.cp\.cta_group::\d\.\d+x(\d+)b")


@dataclass(frozen=True, slots=True)
class SmemRows:
    """An operand in shared memory, K-major: `operand` has its descriptor, of so many rows."""

    operand: str
    count: int


@dataclass(frozen=True, slots=True)
class TmemColumns:
    """Columns of tensor memory, of which the address is `operand`."""

    operand: str
    count: int


def touches(opcode: str, operands: Sequence[str]) -> Iterator[SmemRows | TmemColumns]:
    """What an instruction touches by what it says of itself."""
    if opcode.startswith("wgmma.mma_async"):
        yield from _of_wgmma(opcode, operands)
    elif opcode.startswith("tcgen05.mma"):
        yield from _of_tcgen05(opcode, operands)
    elif match := _COPIED.match(opcode):
        yield TmemColumns(operands[0], int(match[1]) // 32)
    elif (match := _MOVED.match(opcode)) and match[1] in SHAPES:
        place = next((x for x in operands if x.startswith("[")), "")
        yield TmemColumns(place, SHAPES[match[1]] * int(match[2]))


def _of_wgmma(opcode: str, operands: Sequence[str]) -> Iterator[SmemRows]:
    shape = _WGMMA.search(opcode)
    if shape is None:
        return
    # Whether operands lie across their rows: the last immediates of 16-bit types.
    turns = [x.strip() for x in operands[6:]] if "f16" in opcode.rpartition(".")[2] else []
    in_memory = not operands[1].startswith("{")
    if in_memory and (len(turns) < 2 or turns[0] == "0"):
        yield SmemRows(operands[1], 64)
    if not turns or turns[-1] == "0":
        yield SmemRows(operands[2], int(shape[1]))


def _of_tcgen05(opcode: str, operands: Sequence[str]) -> Iterator[SmemRows | TmemColumns]:
    if not operands[3].isdigit():
        return
    word, pair = int(operands[3]), "cta_group::2" in opcode
    columns, rows = (word >> 17 & 0x3F) * 8, (word >> 24 & 0x1F) * 16
    folds = 128 // rows if ".ws" in opcode else 2 if pair and rows == 128 else 1
    yield TmemColumns(operands[0], columns // folds)
    if operands[1].startswith("["):
        yield TmemColumns(operands[1], A_COLUMNS)
    elif not word >> 15 & 1:
        yield SmemRows(operands[1], rows // (1 + pair))
    if not word >> 16 & 1:
        yield SmemRows(operands[2], columns // (1 + pair))


# ---- what is declared ------------------------------------------------------------------------


def beyond_rows(
    schedule: PipelineSchedule, op: Operation, place: int, stride: int, width: int, rows: int
) -> str:
    """What is wrong with a product that reads `rows` rows of an operand whose first begins at byte
    `place`: eights of them lie `stride` apart, and a row has `width` bytes."""
    first = place // width * width
    last = first + (-(-rows // 8) - 1) * stride + 8 * width
    at, name, left = first, "", set[str]()
    for span in sorted(_spans(schedule, op), key=lambda span: span.first):
        # Tiles of one pipeline are other columns; further rows are those of another one.
        if span.first <= at < span.end and span.of not in left:
            at, name = span.end, span.name
            left.add(span.of)
    if not name or at >= last:  # of something else, which the proof looks at
        return ""
    behind = min((last - at) // width, rows)
    return (
        f"reads {rows} rows of {name!r} through a matrix descriptor, of which {behind} lie behind "
        f"its end"
    )


@dataclass(frozen=True, slots=True)
class _Span:
    """A block of shared memory, `of` a pipeline or by itself."""

    first: int
    end: int
    name: str
    of: str


def _spans(schedule: PipelineSchedule, op: Operation) -> Iterator[_Span]:
    """The blocks that an operation uses, slot by slot."""
    smem = schedule.smem
    for value in op.uses:
        block = smem.scratches.get(value.block) or smem.exchanges.get(value.block)
        if block is not None:
            yield _Span(block.base, block.base + block.bytes, block.name, block.name)
        tiles = smem.pipelines[value.block].tiles if value.block in smem.pipelines else ()
        for tile in tiles:
            for slot in range(tile.slots):
                begin = tile.base + slot * tile.bytes
                yield _Span(begin, begin + tile.bytes, tile.name, value.block)


def beyond_columns(schedule: PipelineSchedule, op: Operation, column: int, count: int) -> str:
    """What is wrong with an operation that touches so many columns from `column` on."""
    tmem, pipelines = schedule.tmem, schedule.smem.pipelines
    names = {value.block for value in (*op.uses, *op.defines)}
    spans = [(r.column, r.end, r.name) for r in tmem.regions.values() if r.name in names]
    for tile in (t for name in names & pipelines.keys() for t in pipelines[name].columns):
        for slot in range(tile.slots):
            first = tile.slot_column(slot)
            spans.append((first, first + tile.columns, tile.name))
    for first, end, name in spans:
        if first <= column < end:
            if column + count <= end:
                return ""
            return (
                f"touches columns {column} to {column + count - 1} of tensor memory, {name!r} has "
                f"{first} to {end - 1}"
            )
    if not spans:
        return ""
    of = ", ".join(f"{name!r} ({first} to {end - 1})" for first, end, name in spans)
    return f"touches columns {column} to {column + count - 1} of tensor memory, and is of {of}"


def other_boxes(schedule: PipelineSchedule, op: Operation) -> str:
    """What is wrong with an operation by which one thread fetches tiles: a box has other bytes than
    its tile, so its barrier waits for others than arrive."""
    maps = {a.name: a.tensor_map for a in schedule.signature.arguments if a.tensor_map is not None}
    context: Mapping[str, object] = op.context(Binding(0, False))
    boxes = context.get("boxes", ())
    for tile in (x[0] for x in boxes if isinstance(x[0], TmaTile)):  # type: ignore[attr-defined]
        box = maps.get(tile.tensor)
        if box is None:
            continue
        size = box.box_rows * box.box_cols * DTYPE_BYTES[box.dtype]
        if size != tile.bytes:
            return (
                f"fetches boxes of {box.box_rows} x {box.box_cols} {box.dtype} of {tile.tensor!r}, "
                f"{size} bytes, into tile {tile.name!r} of {tile.rows} rows x {tile.row_bytes} "
                f"bytes ({tile.place})"
            )
    return ""

"""What lies next to a PTX file: the manifest of the artifact it belongs to, read as plain JSON.

The audit takes from it the boxes of tensor maps, the dynamic shared memory, the block, and the
lines of the schedule that made each line of the text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlagen.disk import read_file
from mlagen.errors import BinaryError
from mlagen.targets.sm_90a.limits import SM_90A
from mlagen.untrusted import decode_json

_ELEMENT_BYTES = {
    "bf16": 2, "bfloat16": 2, "fp16": 2, "f16": 2, "float16": 2, "fp32": 4, "f32": 4, "float32": 4,
    "u8": 1, "i8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "u32": 4, "i32": 4, "u16": 2,
}  # fmt: skip
# What the fields that the audit takes may hold; a box: cuTensorMapEncodeTiled.
_THREADS, _BYTES, _BOX, _LINES = SM_90A.max_block_threads, 1 << 30, 256, 1 << 30
_KINDS: dict[type, str] = {list: "list", dict: "object", str: "text"}


@dataclass(frozen=True, slots=True)
class Beside:
    """Facts about a PTX file that its text does not tell."""

    boxes: Mapping[str, int] = field(default_factory=dict)  # tensor map -> bytes of its box
    shared_bytes: int | None = None  # dynamic and static; None: not known
    threads: int = 0
    places: Mapping[int, str] = field(default_factory=dict)  # line -> "schedule.py:41 cluster B"


def read_manifest(path: Path) -> Beside:
    """Reads a manifest. Raises MissingError where it cannot be read, BinaryError where it is no
    JSON object or a field that the audit takes holds something else."""
    data = read_file(path)
    try:
        manifest = decode_json(data, dict[str, Any])
        return beside_of(manifest)
    except ValueError as error:
        raise BinaryError(
            f"the manifest {path} cannot be used: {error}",
            hint="--manifest FILE names another one; without one, move it away",
        ) from None


def beside_of(manifest: Mapping[str, Any]) -> Beside:
    """What a manifest tells, as JSON values. ValueError where a field holds something else."""
    boxes: dict[str, int] = {}
    for argument in _field(manifest, "args", list, []):
        size = _box_bytes(argument)
        if size:
            boxes[str(argument.get("name"))] = size
    extents = [_extent("block", extent, _THREADS) for extent in _field(manifest, "block", list, [])]
    resources = _field(manifest, "resources", dict, {})
    shared = resources.get("lds_bytes")
    return Beside(
        boxes=boxes,
        shared_bytes=_extent("resources.lds_bytes", shared, _BYTES) if shared else _zero(shared),
        threads=_extent("block", math.prod(extents), _THREADS) if extents else 0,
        places=_places(manifest),
    )


def _field(manifest: Mapping[str, Any], name: str, kind: type, missing: Any) -> Any:
    found = manifest.get(name)
    if found is None:
        return missing
    if not isinstance(found, kind):
        raise ValueError(f"{name} is no {_KINDS[kind]}")
    return found


def _extent(name: str, found: Any, most: int) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= most:
        raise ValueError(f"{name} has {found!r:.40}, not a number from 1 to {most}")
    return found


def _zero(found: Any) -> int | None:
    """What a manifest says of a size that is nothing: 0, or not a word."""
    return 0 if found == 0 and not isinstance(found, bool) else None


def _box_bytes(argument: Any) -> int:
    """Bytes of the box of a tensor-map argument, wherever its description nests."""
    if not isinstance(argument, dict):
        return 0
    for item in (argument, *argument.values()):
        if isinstance(item, dict) and "box_cols" in item and "box_rows" in item:
            element = _ELEMENT_BYTES.get(str(item.get("dtype")), 0)
            sides = [_extent(f"args {side}", item[side], _BOX) for side in ("box_cols", "box_rows")]
            return math.prod(sides) * element
    return 0


def _places(manifest: Mapping[str, Any]) -> dict[int, str]:
    """`Manifest.source` is a list of arrays: line, section, cluster, role, template, its line,
    the schedule's line, operation."""
    schedule = _field(manifest, "schedule_file", str, "")
    places: dict[int, str] = {}
    for row in _field(manifest, "source", list, []):
        if not isinstance(row, list) or len(row) < 7 or not row[6]:
            continue
        if any(not isinstance(cell, int | str) for cell in row):
            raise ValueError("a row of source holds more than numbers and names")
        operation = row[7] if len(row) > 7 else ""
        where = f"cluster {row[2]}" if row[2] else row[1]
        told = ", ".join(str(part) for part in (where, operation) if part)
        line = _extent("source", row[0], _LINES)
        places[line] = f"{schedule}:{row[6]}{f' {told}' if told else ''}"
    return places

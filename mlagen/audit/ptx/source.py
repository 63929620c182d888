"""What lies next to a PTX file: the manifest of the artifact it belongs to, read as plain JSON.

The audit takes from it the boxes of tensor maps, the dynamic shared memory, the block, and the
lines of the schedule that made each line of the text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlagen.errors import MissingError

_ELEMENT_BYTES = {
    "bf16": 2, "bfloat16": 2, "fp16": 2, "f16": 2, "float16": 2, "fp32": 4, "f32": 4, "float32": 4,
    "u8": 1, "i8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "u32": 4, "i32": 4, "u16": 2,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Beside:
    """Facts about a PTX file that its text does not tell."""

    boxes: Mapping[str, int] = field(default_factory=dict)  # tensor map -> bytes of its box
    shared_bytes: int = 0  # dynamic and static; 0: not known
    threads: int = 0
    places: Mapping[int, str] = field(default_factory=dict)  # line -> "schedule.py:41 cluster B"


def read_manifest(path: Path) -> Beside:
    """Reads a manifest. Raises MissingError where it is no JSON object."""
    try:
        manifest = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise MissingError(f"the manifest {path} cannot be read: {error}") from error
    if not isinstance(manifest, dict):
        raise MissingError(f"the manifest {path} is no JSON object")
    boxes: dict[str, int] = {}
    for argument in manifest.get("args") or []:
        size = _box_bytes(argument)
        if size:
            boxes[str(argument.get("name"))] = size
    resources = manifest.get("resources") or {}
    threads = 1
    for extent in manifest.get("block") or [0]:
        threads *= int(extent)
    return Beside(
        boxes=boxes,
        shared_bytes=int(resources.get("lds_bytes") or 0),
        threads=threads,
        places=_places(manifest),
    )


def _box_bytes(argument: Any) -> int:
    """Bytes of the box of a tensor-map argument, wherever its description nests."""
    if not isinstance(argument, dict):
        return 0
    for item in (argument, *argument.values()):
        if isinstance(item, dict) and "box_cols" in item and "box_rows" in item:
            element = _ELEMENT_BYTES.get(str(item.get("dtype")), 0)
            return int(item["box_cols"]) * int(item["box_rows"]) * element
    return 0


def _places(manifest: Mapping[str, Any]) -> dict[int, str]:
    """`Manifest.source` is a list of arrays: line, section, cluster, role, template, its line,
    the schedule's line, operation."""
    schedule = manifest.get("schedule_file", "")
    places: dict[int, str] = {}
    for row in manifest.get("source") or []:
        if not isinstance(row, list) or len(row) < 7 or not row[6]:
            continue
        operation = row[7] if len(row) > 7 else ""
        where = f"cluster {row[2]}" if row[2] else row[1]
        told = ", ".join(part for part in (where, operation) if part)
        places[int(row[0])] = f"{schedule}:{row[6]}{f' {told}' if told else ''}"
    return places

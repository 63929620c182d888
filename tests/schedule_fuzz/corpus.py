"""What the fuzzer edits: every shipped schedule in its forms, the examples, and tiny kernels.

A case is a schedule of a file, a problem, knobs to start from, and the calls that survivors are
judged by: numbers of tiles below, at and beyond the loop, with whole and cut tails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@dataclass(frozen=True, eq=False)
class Call:
    """One run: `shape` as the problem's kind takes it, or `tiles` (and keys that the last lacks)
    of one workgroup whose row maxima climb."""

    shape: Mapping[str, Any] = field(default_factory=dict)
    data: str = "jumps"
    tiles: int | None = None
    missing: int = 0

    def __str__(self) -> str:
        if self.tiles is not None:
            return f"N = {self.tiles}" + (f", {self.missing} keys short" if self.missing else "")
        return ", ".join(f"{k}={v}" for k, v in self.shape.items()) + f", {self.data}"


@dataclass(frozen=True, eq=False)
class Case:
    """One kernel that is edited. `solves`: its problem class, where that is not the file's own."""

    name: str
    target: str
    path: Path
    function: str
    problem: Mapping[str, Any]
    calls: tuple[Call, ...]
    knobs: Mapping[str, Any] = field(default_factory=dict)
    solves: str = ""
    share: float = 1.0  # of a campaign's edits, relative to other cases


def climbing(*tiles: int) -> tuple[Call, ...]:
    """One workgroup of so many tiles each, every other one with a cut tail."""
    return tuple(Call(tiles=n, missing=17 if n % 2 else 0) for n in tiles)


def _shipped(name: str, target: str, function: str, problem: Mapping[str, Any],
             calls: tuple[Call, ...], **more: Any) -> Case:  # fmt: skip
    return Case(name, target, ROOT / f"schedules/{function}.py", function, problem, calls, **more)


def _mine(name: str, target: str, problem: Mapping[str, Any], calls: tuple[Call, ...],
          **more: Any) -> Case:  # fmt: skip
    return Case(name, target, HERE / f"schedules/{name}.py", name, problem, calls, **more)


ONE = {"num_heads": 1, "num_kv_heads": 1}
VECTORS = tuple(Call({"tiles": n}, "randn") for n in (1, 2, 3, 4, 5, 6, 7))

CASES: tuple[Case, ...] = (
    _mine("vector_add", "gfx950", {}, VECTORS),
    _shipped(
        "mha_prefill_v2", "gfx950", "mha_prefill_v2", {**ONE, "depth": 64, "mask": "null"},
        climbing(*range(0, 14)),
    ),
)  # fmt: skip


def named(name: str) -> Case:
    """The case of that name."""
    return next(case for case in CASES if case.name == name)

"""The manifest: everything needed to launch a code object and to trace it back to its schedule.

Values only. Sizes are bytes and registers are counted per lane unless a name says otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from mlagen.errors import ConfigError

SCHEMA = "mlagen.manifest/1"

Knob = int | float | str | bool


class Arg(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kernel argument: `size` bytes at `offset` of the kernel-argument segment."""

    name: str
    offset: int
    size: int
    kind: Literal["pointer", "u32", "i32", "f32"]
    access: Literal["read", "write", "value"]


class GridDim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One grid dimension: `ceil(sizes[size] / tile)` workgroups."""

    size: str
    tile: int = 1

    def blocks(self, sizes: Mapping[str, int]) -> int:
        """Workgroups along this dimension for run-time `sizes`."""
        if self.size not in sizes:
            raise ConfigError(
                f"the grid needs the size {self.size!r}",
                hint=f"sizes given: {', '.join(sorted(sizes)) or 'none'}",
            )
        size = sizes[self.size]
        if size < 1:
            raise ConfigError(f"{self.size} = {size}: the grid needs at least 1")
        return -(-size // self.tile)


class SourceLine(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where one line of the `.s` came from. Lines are 1-based; 0 means "not from there"."""

    asm_line: int
    section: str  # "prologue", "loop", "drain odd"
    cluster: str  # "B"; "" outside clusters
    role: str  # "lower", "upper", "all"
    template: str  # "mha/qk.s.j2"
    template_line: int
    schedule_line: int  # in Manifest.schedule_file
    operation: str = ""  # as the schedule says it: "read(V, i-1)"


class Resources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one wave (registers, scratch) and one workgroup (LDS) take."""

    vgprs: int
    agprs: int
    sgprs: int
    lds_bytes: int
    scratch_bytes: int
    vgpr_spills: int
    sgpr_spills: int


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether every cross-wave access pair is ordered, and how far the expansion was checked."""

    status: Literal["proved", "unproved"]
    reasons: tuple[str, ...] = ()
    checked_tiles: int = 0  # the largest N expanded
    pairs: int = 0
    slack: tuple[str, ...] = ()  # waits placed by hand that are stricter than needed


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that is known of one code object."""

    kernel: str
    symbol: str  # of the entry, without ".kd"
    target: str
    problem_type: str
    problem: dict[str, Any]
    schedule_file: str
    knobs: dict[str, Knob]
    args: tuple[Arg, ...]
    kernarg_bytes: int
    block: tuple[int, int, int]
    grid: tuple[GridDim, ...]
    resources: Resources
    proof: Proof
    tools: dict[str, str]
    flags: tuple[str, ...]
    text_sha256: str
    code_sha256: str
    source: tuple[SourceLine, ...] = ()
    schema: str = SCHEMA

    def grid_for(self, sizes: Mapping[str, int]) -> tuple[int, int, int]:
        """The grid in workgroups for run-time `sizes`, padded with 1 to three dimensions."""
        blocks = [dim.blocks(sizes) for dim in self.grid]
        x, y, z = (*blocks, 1, 1, 1)[:3]
        return x, y, z

    @property
    def proved(self) -> bool:
        return self.proof.status == "proved"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A manifest with the bytes it describes: `code` is the `.co`, `text` the `.s`."""

    manifest: Manifest
    code: bytes
    text: str

    @property
    def key(self) -> str:
        """Content address: the rendered text, the tools' versions and the flags."""
        return artifact_key(self.text, self.manifest.tools, self.manifest.flags)


def sha256(data: bytes | str) -> str:
    """Hex digest; text is hashed as UTF-8."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def artifact_key(text: str, tools: Mapping[str, str], flags: Iterable[str]) -> str:
    """The store's key of a kernel. Problem and knobs are not part of it: the text says it all."""
    parts = [sha256(text), sorted(tools.items()), list(flags)]
    return sha256(msgspec.json.encode(parts))

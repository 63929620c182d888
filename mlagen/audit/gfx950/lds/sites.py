"""The LDS instructions of a kernel: what each does, how wide, where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mlagen.binary.banks import access_bytes, dma_bytes, immediate_offsets
from mlagen.binary.effects import is_lds_dma
from mlagen.binary.instruction import MachineInstruction

Kind = Literal["read", "write", "both", "dma"]
_PAIR_STRIDE = 64  # elements, of the st64 forms


@dataclass(frozen=True, slots=True)
class Site:
    """One LDS instruction. `parts`: (immediate offset, bytes) of each run a lane touches.
    `register`: physical number of the address register, -1 for a load to LDS (M0)."""

    ins: MachineInstruction
    kind: Kind
    parts: tuple[tuple[int, int], ...]
    register: int

    @property
    def pc(self) -> int:
        return self.ins.offset

    @property
    def reads(self) -> bool:
        return self.kind in ("read", "both")

    @property
    def writes(self) -> bool:
        return self.kind != "read"


def read_site(ins: MachineInstruction, accum: int) -> Site | None:
    """What an LDS instruction does; None for one whose access is not described here."""
    if is_lds_dma(ins):
        return Site(ins, "dma", ((ins.modifier("offset"), dma_bytes(ins)),), -1)
    address = ins.operand("addr")
    if address is None:
        return None
    register = address.index + (accum if address.kind == "a" else 0)
    parts = _parts(ins)
    if parts is None:
        return None
    if "read" in ins.mnemonic:
        return Site(ins, "read", parts, register)
    kind: Kind = "write" if "write" in ins.mnemonic else "both"
    return Site(ins, kind, parts, register)


def _parts(ins: MachineInstruction) -> tuple[tuple[int, int], ...] | None:
    name = ins.mnemonic
    if any(word in name for word in ("read2", "write2", "wrxchg2")):
        width = 8 if name.endswith("b64") else 4
        step = width * (_PAIR_STRIDE if "st64" in name else 1)
        return tuple((ins.modifier(f"offset{i}") * step, width) for i in (0, 1))
    width = access_bytes(ins) or _atomic_bytes(name)
    return ((immediate_offsets(ins)[0], width),) if width else None


def _atomic_bytes(name: str) -> int:
    return 8 if name.endswith(("64", "pk_add_f16x2")) else 4 if name.endswith(("32", "16")) else 0

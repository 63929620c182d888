"""Where NaN and Inf come from, as values: first appearances, their operands, outputs they reach."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NonfiniteSource:
    """One operand of an instruction that made or met a NaN or Inf.

    `register`: its name, or a constant's text; `bits`: the dword, `values`: the floats in it (one
    f32, two halves, four bytes). `writer_pc` / `writer_asm`: the instruction that wrote the
    register last; of a load also `address_pc` / `address_asm`: the one that wrote the register of
    its address. `provenance`: where the bits come from, in words.
    """

    register: str
    lane: int
    bits: int
    format: str
    values: tuple[float, ...]
    writer_pc: int | None
    writer_asm: str
    address_pc: int | None
    address_asm: str
    provenance: str


@dataclass(frozen=True, slots=True)
class NonfiniteOrigin:
    """The first NaN or Inf of its kind at one instruction, from one writer of its operand.

    `pc`: byte offset from the kernel's entry. `register`, `lane`, `bits`: the result that shows it.
    `culprit`: index in `sources` of the operand to blame, None when all were finite. `order`: its
    rank in its workgroup, from 0 in execution order. `count`: lanes and times it was met, in all
    workgroups. `kind`: see KINDS.
    """

    kind: str
    message: str
    pc: int
    asm: str
    wave: int
    workgroup: tuple[int, int, int]
    order: int
    register: str
    lane: int
    bits: int
    values: tuple[float, ...]
    sources: tuple[NonfiniteSource, ...]
    culprit: int | None
    count: int

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True, slots=True)
class NonfiniteOutput:
    """NaN or Inf that a kernel left in a buffer, by the store and the origin they came from.

    `index`: the first such element (in the shape of the buffer's array); `count`: how many.
    `store_pc` is None for elements that no workgroup of this run stored to. `origin` is None where
    no float instruction had to do with it.
    """

    buffer: str
    index: tuple[int, ...]
    value: float
    count: int
    store_pc: int | None
    store_asm: str
    workgroup: tuple[int, int, int] | None
    origin: NonfiniteOrigin | None
    message: str

    def __str__(self) -> str:
        return self.message

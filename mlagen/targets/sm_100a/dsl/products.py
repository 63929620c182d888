"""What one tcgen05.mma multiplies, and the words that say so to it.

D += A B, with D of `rows` x `columns` in TMEM, A of `rows` x `depth` in SMEM or TMEM, and B of
`depth` x `columns` in SMEM. Shapes: PTX ISA, tcgen05 matrix shapes; fields of the descriptors: PTX
ISA, tcgen05 instruction descriptor and matrix descriptor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mlagen.errors import ScheduleError
from mlagen.targets.sm_100a.limits import SM_100A

# By kind: what the fields of the types of A and B say, and bytes of an element in SMEM.
TYPES = {
    "f16": ({"fp16": 0, "bf16": 1}, 2),
    "f8f6f4": ({"fp8_e4m3": 0, "fp8_e5m2": 1}, 1),
}
SUMS = {"fp16": 0, "fp32": 1}
SWIZZLES = {0: 0, 128: 2, 64: 4, 32: 6}  # by bytes of a swizzled row
UNIT = 16  # bytes that addresses and offsets of a matrix descriptor count


@dataclass(frozen=True, slots=True)
class Product:
    """The shape and the types of one tcgen05.mma. ScheduleError for one that there is not.

    `rows` (M) are those of both CTAs with `cta_group` 2. `weights`: the form .ws. `a_major` and
    `b_major`: which index of the operand in SMEM runs along its rows of bytes.
    """

    rows: int
    columns: int
    a: str = "bf16"
    b: str = "bf16"
    sums: str = "fp32"
    cta_group: Literal[1, 2] = 1
    weights: bool = False
    a_major: Literal["k", "mn"] = "k"
    b_major: Literal["k", "mn"] = "k"

    def __post_init__(self) -> None:
        types = TYPES[self.kind][0]
        if self.a not in types or self.b not in types or (self.kind == "f16" and self.a != self.b):
            raise ScheduleError(
                f"a product of {self.a} and {self.b}: kind::{self.kind} has "
                f"{', '.join(types)}" + (", both the same" if self.kind == "f16" else "")
            )
        if self.sums not in SUMS:
            raise ScheduleError(f"sums in {self.sums}; kind::{self.kind} has {', '.join(SUMS)}")
        if self.weights and self.cta_group == 2:
            raise ScheduleError("a product .ws of two CTAs; .ws is of cta_group 1")
        rows, step, least = self._shapes
        most = SM_100A.mma_columns_max
        powers = self.weights and self.columns & (self.columns - 1)
        if self.rows not in rows or self.columns % step or powers or not (
            least <= self.columns <= most
        ):  # fmt: skip
            form = ".ws" if self.weights else f"of cta_group {self.cta_group}"
            count = "powers of two" if self.weights else f"in steps of {step}"
            raise ScheduleError(
                f"kind::{self.kind} has no product {form} of {self.rows} x {self.columns}",
                hint=f"rows: {', '.join(map(str, rows))}; columns of {self.rows} rows: {least} to "
                f"{most}, {count}",
            )

    @property
    def kind(self) -> str:
        """The kind whose elements A has."""
        for kind, (types, _) in TYPES.items():
            if self.a in types:
                return kind
        known = ", ".join(name for types, _ in TYPES.values() for name in types)
        raise ScheduleError(f"a product of {self.a}", hint=f"elements: {known}")

    @property
    def _shapes(self) -> tuple[tuple[int, ...], int, int]:
        """Rows that there are, the step of columns, and the least of them."""
        if self.weights:
            return (32, 64, 128), 64, 64
        if self.cta_group == 2:
            return (128, 256), 32, 32
        return ((64, 128), 8, 8) if self.rows == 64 else ((64, 128), 16, 16)

    @property
    def depth(self) -> int:
        """Elements of K that one instruction multiplies."""
        return SM_100A.mma_depth_bytes // TYPES[self.kind][1]

    @property
    def word(self) -> int:
        """The instruction descriptor."""
        types = TYPES[self.kind][0]
        return (
            SUMS[self.sums] << 4
            | types[self.a] << 7
            | types[self.b] << 10
            | (self.a_major == "mn") << 15
            | (self.b_major == "mn") << 16
            | self.columns // 8 << 17
            | self.rows // 16 << 24
        )

    @property
    def opcode(self) -> str:
        """The instruction, without its operands."""
        form = ".ws" if self.weights else ""
        return f"tcgen05.mma{form}.cta_group::{self.cta_group}.kind::{self.kind}"


def matrix_descriptor(*, leading: int, stride: int, swizzle: int = 128) -> int:
    """The descriptor of an operand in SMEM, but for its address, which is in units of 16 bytes in
    bits 0 to 13. `leading` and `stride`: byte offsets; with a swizzle of K-major operands the
    leading one is not read. `swizzle`: bytes of a swizzled row, 0 for none."""
    for name, offset in (("leading", leading), ("stride", stride)):
        if offset % UNIT or not 0 <= offset // UNIT < 1 << 14:
            raise ScheduleError(
                f"a {name} offset of {offset} bytes; a matrix descriptor has multiples of {UNIT} "
                f"up to {((1 << 14) - 1) * UNIT}"
            )
    if swizzle not in SWIZZLES:
        raise ScheduleError(
            f"a swizzle of {swizzle} bytes", hint=f"there are {', '.join(map(str, SWIZZLES))}"
        )
    version = 1
    return (
        leading // UNIT << 16 | stride // UNIT << 32 | version << 46 | SWIZZLES[swizzle] << 61
    )  # fmt: skip

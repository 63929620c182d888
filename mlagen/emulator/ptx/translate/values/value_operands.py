"""What translations of values share: modifiers that are looked at one by one, operands by type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.translate.rows import Row, Translator, not_modelled
from mlagen.ptx import Instruction
from mlagen.ptx.syntax import Operand, Real

FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
CLOCKS = {  # special registers that change: how far they are shifted
    "%clock": 0,
    "%clock64": 0,
    "%clock_hi": 32,
    "%globaltimer": 0,
    "%globaltimer_lo": 0,
    "%globaltimer_hi": 32,
}
_BITS = {"pred": 1, "tf32": 32}


def bits_of(kind: str) -> int:
    """Bits of a type: "s32" 32, "f16x2" 32, "pred" 1."""
    if kind in _BITS:
        return _BITS[kind]
    base, _, times = kind.partition("x")
    digits = "".join(c for c in base.removeprefix("b").removeprefix("f") if c.isdigit())
    if base.startswith(("e", "ue")):  # e4m3: eight bits each but e2m1
        digits = "4" if base == "e2m1" else "8"
    return int(digits) * int(times or 1)


class Modifiers:
    """The parts of an opcode after its name; each is taken once, and none may be left."""

    def __init__(self, instruction: Instruction, types: int = 1) -> None:
        self.instruction = instruction
        parts = instruction.parts[1:]
        self.types = parts[len(parts) - types :]
        self.left = list(parts[: len(parts) - types])

    @property
    def type(self) -> str:
        """The last type."""
        return self.types[-1]

    def flag(self, name: str) -> bool:
        """Whether a modifier is there."""
        found = name in self.left
        if found:
            self.left.remove(name)
        return found

    def one(self, names: Iterable[str], default: str = "") -> str:
        """The modifier of several that is there."""
        for name in names:
            if self.flag(name):
                return name
        return default

    def end(self) -> None:
        """Refuse what was not asked for."""
        if self.left:
            raise not_modelled(self.instruction, f"with .{self.left[0]}")


def row_of(kind: int, op: int, results: Sequence[int], sources: Sequence[int]) -> Row:
    """A row with up to four places of results, and of sources."""
    to = [*results, *[y.NONE] * (4 - len(results))]
    a, b, c, d = [*sources, *[y.NONE] * (4 - len(sources))]
    return Row(kind, op, to[0], a, b, c, d, dst2=to[1], aux=to[2:])


def number(table: dict[str, int], key: str, i: Instruction) -> int:
    """The number of an operation; refuses an instruction that has none."""
    if key not in table:
        raise not_modelled(i, f"no operation {key}")
    return table[key]


def result(t: Translator, i: Instruction, operand: Operand, bits: int) -> int:
    """The place of a destination of that many bits; a sink has a row that nobody reads."""
    if operand == "_":
        return t.hidden("sink", 512)
    return t.register(operand, bits)


def source(t: Translator, i: Instruction, operand: Operand, bits: int, real: bool = False) -> int:
    """The place of a source of that many bits; `real`: a number has to be written as one."""
    if isinstance(operand, str) and operand in CLOCKS:
        raise not_modelled(i, f"{operand} outside mov")
    if real and isinstance(operand, int):
        raise not_modelled(i, f"{operand} is no floating-point number")
    if isinstance(operand, Real) and bits not in (16, 32, 64):
        raise not_modelled(i, "a floating-point number of this size")
    return t.source(operand, bits)


def predicate(t: Translator, i: Instruction, operand: Operand) -> tuple[int, bool]:
    """The place of a predicate, and whether it is negated."""
    if isinstance(operand, int):
        return t.constant(y.ALL if operand else 0, 1), False
    if not isinstance(operand, str):
        raise not_modelled(i, f"{operand!r} is no predicate")
    name = operand.removeprefix("!")
    return source(t, i, name, 1), operand.startswith("!")

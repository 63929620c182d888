"""Finds what each printed operation takes and leaves: registers of its role, read from its lines,
and what lies in SMEM, as the operation declares it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from math import lcm

from mlagen.codegen.dataflow import Effect
from mlagen.dsl import Operation
from mlagen.targets.nvidia.codegen.absent import absent
from mlagen.targets.nvidia.codegen.derived import WAITS
from mlagen.targets.nvidia.codegen.effects import UnknownInstruction, effect_of
from mlagen.targets.nvidia.codegen.emit import Emitter, Printed
from mlagen.targets.nvidia.codegen.names import COUNTS, LOOP, OWN, RANK, TILES, another

# Instructions after which memory, a barrier or an accumulator is another (PTX ISA, chapter 9.7).
_LEAVES = re.compile(
    r"\s*(@!?%\w+\s+)?(st|red|atom|cp|mbarrier|barrier|bar|wgmma|tcgen05|stmatrix|multimem|mma|"
    r"griddepcontrol|call)\b"
)

NOTHING = Effect(frozenset(), frozenset())


class Refused(Exception):
    """What is wrong with a printed operation: (code, operation, what)."""

    def __init__(self, code: str, op: Operation, what: str) -> None:
        super().__init__(code, op, what)
        self.code, self.op, self.what = code, op, what


class Touches:
    """The effects of everything that an emitter printed. `shared`: with what lies in SMEM, which
    roles share. `counts`: which of COUNTS a printed operation reads and writes, by its id."""

    def __init__(self, emitter: Emitter, *, shared: bool) -> None:
        self.emitter, self.schedule, self.shared = emitter, emitter.schedule, shared
        self.counts: dict[int, tuple[frozenset[Hashable], frozenset[Hashable]]] = {}
        self._at: dict[tuple[int, bool], Printed] = {}  # by operation, whether as that of tile 0
        self._registers: dict[int, Effect] = {}
        self._whole: dict[tuple[int, int], Effect] = {}
        self._periods: dict[int, int] = {}  # places, by operation, after which its slots repeat
        self._read(_texts(emitter))
        self._join()

    def of(self, role: str, op: Operation, place: int, *, first: bool) -> Effect:
        """What an operation does for the tile at `place`. `first`: as that of tile 0."""
        first = first and op.first_differs
        printed = self._at.get((id(op), first)) or self._at.get((id(op), not first))
        if printed is None:
            return NOTHING
        if id(op) not in self._periods:
            pipelines = self.schedule.smem.pipelines
            depths = [pipelines[name].depth for name in _blocks(op) if name in pipelines]
            self._periods[id(op)] = lcm(*depths)
        key = (id(printed), place % self._periods[id(op)])
        if key not in self._whole:
            self._whole[key] = self._with_smem(role, printed, place)
        return self._whole[key]

    def registers(self, role: str, op: Operation) -> Effect:
        """What an operation does to the registers of its role."""
        printed = self._at.get((id(op), False)) or self._at.get((id(op), True))
        effect = NOTHING if printed is None else self._registers[id(printed)]
        return Effect(*(frozenset((role, name) for name in names)
                        for names in (effect.reads, effect.writes, effect.may)))  # fmt: skip

    def _read(self, texts: Mapping[Printed, tuple[str, ...]]) -> None:
        """Raises Refused."""
        registers = self.schedule.registers
        declared = {f"%{r.name}{index}" for r in registers for index in range(r.count)}
        kept = {name for _, names, _ in self.emitter.registers for name in names.split(", ")}
        kept |= {*OWN, RANK} if self.schedule.smem.pair else set(OWN)
        counts = set(COUNTS)
        kept -= counts
        known = declared | kept | counts | set(LOOP)
        # Where roles go apart, what begins an item counts its tiles.
        apart = self.schedule.persistent == "apart"
        counting = {id(op) for s in self.schedule.streams for op in s.items if apart}
        by_text: dict[tuple[str, ...], Effect] = {}
        for printed, text in texts.items():
            op = printed.op
            if op.name in WAITS:
                continue
            same = self._at.setdefault((id(op), printed.first and op.first_differs), printed)
            if texts[same] != text:
                raise Refused(
                    "wrong-slot", op, "is not printed alike everywhere: in the loop it is for any "
                    "tile, so nothing of it may depend on which one"
                )  # fmt: skip
            if wrong := absent(text):
                raise Refused("not-in-language", op, wrong)
            if left := _in_flight(text):
                raise Refused(
                    "tensor-wait", op, f"ends with a {left} in flight: tcgen05.wait::{left[-2:]} "
                    "must follow it, since the proof takes for done what an operation does itself"
                )  # fmt: skip
            if wrong := self._no_hint(op, text):
                raise Refused("hint", op, wrong)
            if wrong := self._no_copy(op, text):
                raise Refused("tensor-operand", op, wrong)
            if text not in by_text:
                try:
                    by_text[text] = effect_of(text, known)
                except UnknownInstruction as error:
                    raise Refused(
                        "data-flow", op, f"has `{error}`, of which no table says what it writes "
                        f"(mlagen/targets/nvidia/codegen/effects.py)"
                    ) from error  # fmt: skip
            effect = by_text[text]
            written = effect.writes | effect.may
            taken = {str(name) for name in written & kept}
            if self.schedule.persistent and id(op) not in counting:
                taken |= {TILES} & written
            if taken:
                raise Refused(
                    "control-flow", op, f"writes {min(taken)}, a register of mlagen's own: take "
                    f"{another(min(taken))}"
                )  # fmt: skip
            if read := effect.reads & set(LOOP):
                raise Refused(
                    "control-flow", op, f"reads {min(map(str, read))}, which is the loop's: in a "
                    "prologue or a drain it is not of this tile"
                )  # fmt: skip
            self.counts[id(printed)] = (effect.reads & counts, written & counts)
            self._registers[id(printed)] = _only(effect, declared)

    def _no_hint(self, op: Operation, text: tuple[str, ...]) -> str:
        """What is wrong with an operation that the kernel calls a hint: the plain loop need not do
        it, so it may leave nothing behind."""
        plain = self.schedule.plain
        if plain is None or op.key not in plain.hints:
            return ""
        if op.access is not None:
            return f"is called a hint, and does {op}: a hint leaves nothing behind"
        left = next((line for line in text if _LEAVES.match(line) and "prefetch" not in line), None)
        return f"is called a hint, and has `{left.strip()}`" if left is not None else ""

    def _no_copy(self, op: Operation, text: tuple[str, ...]) -> str:
        """What is wrong with an operation that fills an operand in TMEM: the proof takes it for a
        copy, which the products after it wait for."""
        regions = self.schedule.tmem.regions
        fills = [v.block for v in op.defines if v.block in regions and regions[v.block].operand]
        if fills and any("tcgen05.mma" in line for line in text):
            return f"fills {fills[0]!r}, an operand of its own role, with products: tcgen05.cp does"
        return ""

    def _join(self) -> None:
        """One register stands for all that the same operations read and write."""
        uses: dict[Hashable, list[tuple[int, int]]] = {}
        for key, effect in self._registers.items():
            for kind, registers in enumerate((effect.reads, effect.writes, effect.may)):
                for register in registers:
                    uses.setdefault(register, []).append((key, kind))
        first: dict[tuple[tuple[int, int], ...], Hashable] = {}
        for register in sorted(uses, key=lambda name: (len(str(name)), str(name))):
            first.setdefault(tuple(uses[register]), register)
        stands = set(first.values())
        self._registers = {key: _only(x, stands) for key, x in self._registers.items()}

    def _with_smem(self, role: str, printed: Printed, place: int) -> Effect:
        effect, op = self._registers[id(printed)], printed.op
        reads, writes, may = (
            {(role, name) for name in names} for names in (effect.reads, effect.writes, effect.may)
        )
        if self.shared:
            reads |= {self._slot(v.block, place) for v in op.uses if self._lies(v.block)}
            filled = {self._slot(v.block, place) for v in op.defines if self._lies(v.block)}
            if not printed.first:  # a product adds to what lies in TMEM
                tensor = self.schedule.tmem.regions
                reads |= {("", v.block) for v in op.defines if v.block in tensor}
            if op.access is not None and op.access.kind == "copy":
                filled.add(self._slot(op.access.target.ring, place))
            if op.guarded:
                may |= filled
            else:
                writes |= filled
        return Effect(frozenset(reads), frozenset(writes), frozenset(may))

    def _lies(self, block: str) -> bool:
        smem = self.schedule.smem
        held = (smem.pipelines, smem.exchanges, smem.scratches, self.schedule.tmem.regions)
        return any(block in names for names in held)

    def _slot(self, block: str, place: int) -> tuple[str, str]:
        """What lies in SMEM, of no role: a tile's slot, an exchange, a scratch."""
        pipeline = self.schedule.smem.pipelines.get(block)
        if pipeline is None or pipeline.resident:
            return ("", block)
        return ("", f"{block}[{place % pipeline.depth}]")


def _only(effect: Effect, names: set[str] | set[Hashable]) -> Effect:
    return Effect(effect.reads & names, effect.writes & names, effect.may & names)


def _blocks(op: Operation) -> set[str]:
    names = {value.block for value in (*op.uses, *op.defines)}
    return names | {op.access.target.ring} if op.access is not None else names


def _in_flight(text: tuple[str, ...]) -> str:
    """The load or store of TMEM after which its wait is not printed; "" for none."""
    for what in ("ld", "st"):
        lines = [n for n, line in enumerate(text) if f"tcgen05.{what}." in line]
        waits = [n for n, line in enumerate(text) if f"tcgen05.wait::{what}." in line]
        if lines and (not waits or waits[-1] < lines[-1]):
            return f"tcgen05.{what}"
    return ""


def _texts(emitter: Emitter) -> dict[Printed, tuple[str, ...]]:
    """The lines of everything that is printed."""
    texts: dict[Printed, list[str]] = {}
    for line in emitter.lines:
        if line.printed is not None:
            texts.setdefault(line.printed, []).append(line.text)
    for silent in emitter.silent.values():
        for printed in silent:
            texts.setdefault(printed, [])
    return {printed: tuple(lines) for printed, lines in texts.items()}

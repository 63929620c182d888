"""Raw records of the tracer to `NonfiniteOrigin` and `NonfiniteOutput` values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import ml_dtypes
import numpy as np

from mlagen.binary import MachineInstruction
from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950 import trace_layout as t
from mlagen.emulator.gfx950.memory import BufferArena
from mlagen.emulator.gfx950.raw_findings import register_text, workgroup_of
from mlagen.emulator.gfx950.translate import TranslatedKernel
from mlagen.emulator.nonfinite import NonfiniteOrigin, NonfiniteOutput, NonfiniteSource
from mlagen.emulator.tracing.float_operands import NAMES, values
from mlagen.emulator.tracing.tracer_tables import MOVES, Shadow

_KINDS = {t.MADE: "made", t.NAN_FROM_INF: "nan-from-inf"}
_CONSTANTS = MOVES | {"s_mov_b32", "s_mov_b64", "s_movk_i32", "s_cselect_b32"}
_SHOWN = 8  # groups of non-finite elements that are told apart in one buffer


@dataclass
class Found:
    """Origins of a run: those of all workgroups joined, and which record became which."""

    origins: list[NonfiniteOrigin] = field(default_factory=list)
    by_record: dict[tuple[int, int], int] = field(default_factory=dict)

    def of(self, group: int, number: int) -> NonfiniteOrigin | None:
        """The origin of record `number` (from 1) of workgroup `group`."""
        index = self.by_record.get((group, number))
        return None if index is None else self.origins[index]


class Describer:
    """Names for the numbers in records."""

    def __init__(
        self,
        program: TranslatedKernel,
        memory: BufferArena,
        shadow: Shadow,
        grid: tuple[int, int, int],
    ) -> None:
        self.program = program
        self.memory = memory
        self.shadow = shadow
        self.grid = grid

    def origins(self, tables: Sequence[tuple[int, np.ndarray]]) -> Found:
        """Join the records of all (workgroup, records): one origin a (kind, place, last writer)."""
        found = Found()
        seen: dict[tuple[int, int, int], int] = {}
        for group, table in tables:
            for order, row in enumerate(table.tolist()):
                key = (row[t.R_KIND], row[t.R_ROW], row[t.R_KEY])
                if key in seen:
                    origin = found.origins[seen[key]]
                    found.origins[seen[key]] = replace(origin, count=origin.count + row[t.R_COUNT])
                else:
                    seen[key] = len(found.origins)
                    found.origins.append(self._origin(row, group, order))
                found.by_record[(group, order + 1)] = seen[key]
        return found

    def _origin(self, row: list[int], group: int, order: int) -> NonfiniteOrigin:
        ins = self.program.instructions[row[t.R_ROW]]
        form = int(self.shadow.table[row[t.R_ROW], t.T_RESULT])
        culprit = row[t.R_CULPRIT]
        kind = _KINDS.get(row[t.R_KIND], "")
        sources: list[NonfiniteSource] = []
        index: int | None = None
        for which in range(3):
            base = t.R_SOURCE + which * t.SOURCE_SIZE
            raw = row[base : base + t.SOURCE_SIZE]
            if raw[t.RS_KIND] == y.S_NONE:
                continue
            if which == culprit:
                index = len(sources)
                kind = kind or self._kind(raw)
            sources.append(self._source(raw, row[t.R_ROW], which, ins))
        register = register_text(self.program, row[t.R_REGISTER], (ins,))
        floats = values(form, row[t.R_RESULT])
        workgroup = workgroup_of(group, self.grid)
        where = f"workgroup {workgroup}, wave {row[t.R_WAVE]}, lane {row[t.R_LANE]}"
        operands = "; ".join(
            f"{'the culprit, ' if number == index else ''}{_operand_text(source)}"
            for number, source in enumerate(sources)
        )
        verb = "makes" if kind in ("made", "nan-from-inf") else "passes on"
        return NonfiniteOrigin(
            kind=kind,
            message=(
                f"{ins} at {ins.offset:#x} ({where}) {verb} {_floats_text(floats)} in {register}, "
                f"from {operands}"
            ),
            pc=ins.offset,
            asm=str(ins),
            wave=row[t.R_WAVE],
            workgroup=workgroup,
            order=order,
            register=register,
            lane=row[t.R_LANE],
            bits=row[t.R_RESULT],
            values=floats,
            sources=tuple(sources),
            culprit=index,
            count=row[t.R_COUNT],
        )

    def _kind(self, raw: list[int]) -> str:
        """What an operand is that was non-finite before any float instruction touched it."""
        mark = raw[t.RS_MARK]
        if raw[t.RS_KIND] == y.S_CONST:
            return "constant"
        if raw[t.RS_WRITER] == 0 or raw[t.RS_PENDING] or mark == 0:
            return "undefined"
        if mark & t.MEMORY:
            return "input"
        maker = self._instruction(mark & t.BODY)
        if maker is None or maker.mnemonic.startswith(("s_load", "buffer_load", "global_load")):
            return "input"
        return "constant" if maker.mnemonic in _CONSTANTS else "integer"

    def _instruction(self, number: int) -> MachineInstruction | None:
        return self.program.instructions[number - 1] if number else None

    def _source(
        self, raw: list[int], row: int, which: int, ins: MachineInstruction
    ) -> NonfiniteSource:
        form = int(self.shadow.table[row, t.T_SOURCE + which])
        writer = self._instruction(raw[t.RS_WRITER])
        address = self._instruction(raw[t.RS_ADDRESS])
        name = f"{raw[t.RS_REGISTER] & 0xFFFFFFFF:#x}"
        if raw[t.RS_KIND] != y.S_CONST:
            shift = y.VECTOR_ROWS if raw[t.RS_KIND] == y.S_SCALAR else 0
            name = register_text(self.program, raw[t.RS_REGISTER] + shift, (ins, writer))
        return NonfiniteSource(
            register=name,
            lane=raw[t.RS_LANE],
            bits=raw[t.RS_VALUE],
            format=NAMES.get(form, "bits"),
            values=values(form, raw[t.RS_VALUE]),
            writer_pc=writer.offset if writer else None,
            writer_asm=str(writer) if writer else "",
            address_pc=address.offset if address else None,
            address_asm=str(address) if address else "",
            provenance=self._provenance(raw, writer),
        )

    def _provenance(self, raw: list[int], writer: MachineInstruction | None) -> str:
        mark = raw[t.RS_MARK]
        if raw[t.RS_KIND] == y.S_CONST:
            return "a constant"
        if writer is None:
            return "never written"
        if raw[t.RS_PENDING]:
            return "a load that is still in flight"
        if mark == 0:
            lds = writer.mnemonic.startswith("ds_")
            return "LDS that was never written" if lds else "a register that was never written"
        if mark & t.MEMORY:
            return self._element(mark & t.BODY)
        maker = self._instruction(mark & t.BODY)
        return f"{maker} at {maker.offset:#x}" if maker else ""

    def _element(self, offset: int) -> str:
        """Name of a byte of the arena: its buffer, and the element where the type is known."""
        for number, row in enumerate(self.memory.table.tolist()):
            inside = offset - row[y.B_ARENA]
            if 0 <= inside < row[y.B_BYTES]:
                if number >= len(self.memory.buffers):
                    return f"the kernel's arguments + {inside:#x}"
                buffer = self.memory.buffers[number]
                index = inside // buffer.array.itemsize
                place = ", ".join(str(int(i)) for i in np.unravel_index(index, buffer.array.shape))
                return f"{buffer.name}[{place}]"
        return "memory"

    def outputs(self, found: Found) -> tuple[NonfiniteOutput, ...]:
        """NaN and Inf that the run left in buffers of floats which the kernel may write."""
        result: list[NonfiniteOutput] = []
        for number, buffer in enumerate(self.memory.buffers):
            if buffer.access != "read" and is_float(buffer.array.dtype):
                result.extend(self._outputs_of(number, buffer.name, buffer.array, found))
        return tuple(result)

    def _outputs_of(
        self, number: int, name: str, array: np.ndarray, found: Found
    ) -> list[NonfiniteOutput]:
        flat = array.reshape(-1)
        bad = np.flatnonzero(~np.isfinite(flat))
        start = int(self.memory.table[number, y.B_ARENA])
        dwords = (start + bad * array.itemsize) >> 2
        stores = self.shadow.stores[dwords]
        origins = self.shadow.marks[dwords] >> t.ORIGIN_SHIFT
        groups: dict[tuple[int, int], list[int]] = {}
        for i, (store, origin) in enumerate(zip(stores.tolist(), origins.tolist(), strict=True)):
            index = found.by_record.get(((store >> 24) - 1, origin), -1)
            # By origin; what has none, by the store that wrote it.
            groups.setdefault((0 if index >= 0 else store & 0xFFFFFF, index), []).append(i)
        result = []
        for (_, index), members in list(groups.items())[:_SHOWN]:
            first = members[0]
            store = self._instruction(int(stores[first]) & 0xFFFFFF)
            group = workgroup_of((int(stores[first]) >> 24) - 1, self.grid) if store else None
            origin = found.origins[index] if index >= 0 else None
            element = tuple(int(i) for i in np.unravel_index(int(bad[first]), array.shape))
            value = float(flat[bad[first]])
            where = ", ".join(map(str, element))
            text = f"{name}[{where}] is {_floats_text((value,))}"
            if len(members) > 1:
                text += f" (and {len(members) - 1} more)"
            if store is None:
                text += ": no workgroup of this run stored it"
            else:
                text += f", stored by {store} at {store.offset:#x}"
                if origin is not None:
                    text += f": it comes from {origin.asm} at {origin.pc:#x} ({origin.kind})"
                else:
                    mark = int(self.shadow.marks[dwords[first]])
                    text += f": {self._copied(mark)}"
            result.append(
                NonfiniteOutput(
                    buffer=name,
                    index=element,
                    value=value,
                    count=len(members),
                    store_pc=store.offset if store else None,
                    store_asm=str(store) if store else "",
                    workgroup=group,
                    origin=origin,
                    message=text,
                )
            )
        return result

    def _copied(self, mark: int) -> str:
        if mark == 0:
            return "from a register or LDS that was never written"
        if mark & t.MEMORY:
            return f"a copy of {self._element(mark & t.BODY)}"
        maker = self._instruction(mark & t.BODY)
        return f"its bits were made by {maker} at {maker.offset:#x}" if maker else ""


def is_float(dtype: np.dtype) -> bool:
    """Whether the elements can be NaN or Inf: numpy's floats, bf16 and the 8-bit formats."""
    try:
        ml_dtypes.finfo(dtype)
    except ValueError:
        return False
    return True


def _floats_text(floats: tuple[float, ...]) -> str:
    named = [
        "NaN" if math.isnan(x) else ("Inf" if x > 0 else "-Inf") if math.isinf(x) else f"{x:.9g}"
        for x in floats
    ]
    return named[0] if len(named) == 1 else "(" + ", ".join(named) + ")"


def _operand_text(source: NonfiniteSource) -> str:
    text = f"{source.register} = {source.bits:#010x}"
    if source.values:
        text += f" ({source.format} {_floats_text(source.values)})"
    if source.writer_pc is not None:
        text += f" written by {source.writer_asm} at {source.writer_pc:#x}"
        own = f"{source.writer_asm} at {source.writer_pc:#x}"
        if source.provenance and source.provenance != own:
            text += f" from {source.provenance}"
        if source.address_pc is not None:
            text += f", its address by {source.address_asm} at {source.address_pc:#x}"
    else:
        text += f", {source.provenance}"
    return text

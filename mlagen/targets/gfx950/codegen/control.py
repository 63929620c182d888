"""Control flow that the generator adds around a schedule's operations."""

from __future__ import annotations

from mlagen.errors import ScheduleError
from mlagen.targets.gfx950.codegen.isa import Parser
from mlagen.targets.gfx950.codegen.program import Origin, ProgramInstruction, RoleStream, Segment
from mlagen.targets.gfx950.dsl import Schedule
from mlagen.targets.gfx950.limits import GFX950

NEEDED = ("N", "LEFT", "WAVE")  # scalar registers that the control flow reads
ITEMS = ("ITEMS", "ITEM")  # and of a persistent kernel
LANE_BITS = GFX950.wave_size.bit_length() - 1


class ControlFlow:
    """Spells labels and branches of one stream ("" in `role`: the one that all roles share)."""

    def __init__(self, schedule: Schedule, parser: Parser, prefix: str) -> None:
        needed = NEEDED + ITEMS if schedule.persistent else NEEDED
        missing = [name for name in needed if name not in schedule.registers.scalars]
        if missing:
            raise ScheduleError(
                f"{schedule.file}: control flow needs the scalar register {missing[0]!r}",
                hint="entry(...) of the schedule's space declares it",
            )
        self.schedule, self.parser, self.prefix = schedule, parser, prefix

    def label(self, name: str) -> str:
        return f".L{self.prefix}_{name}"

    def code(self, *lines: str) -> list[ProgramInstruction]:
        origin = Origin("control flow", "", 0, self.schedule.line)
        parsed = [self.parser.line(line, origin) for line in lines]
        return [instruction for instruction in parsed if instruction is not None]

    def entry(self, setups: dict[str, str]) -> Segment:
        """The wave's number, and the branch to its role's code. `setups`: where each role's code
        begins, in wave order; that of the first follows the entry.

        The packed work-item id has x in bits 9:0 (LLVM AMDGPUUsage, initial kernel execution
        state), and a wave's first lane the lowest of 64: the rest of x is the wave's number.
        """
        body = self.code(
            "v_readfirstlane_b32 s[WAVE], v[T]",
            "s_and_b32 s[WAVE], s[WAVE], 0x3ff",
            f"s_lshr_b32 s[WAVE], s[WAVE], {LANE_BITS}",
        )
        for role in reversed(self.schedule.roles.members[1:]):
            body += self.code(
                f"s_cmp_ge_u32 s[WAVE], {role.waves.start}", f"s_cbranch_scc1 {setups[role.name]}"
            )
        return Segment(self.label("ENTRY"), "entry", [], tail=body)

    def stagger(self, stream: RoleStream, *, entering: bool) -> list[ProgramInstruction]:
        """Bare barriers that delay later roles on entry, and even the totals at the end."""
        levels = self.schedule.roles.stagger
        if stream.role:
            own = stream.members[0].stagger
            return self.code(*["s_barrier"] * (own if entering else levels - own))
        code: list[ProgramInstruction] = []
        for level in range(levels):
            later = next(role for role in stream.members if role.stagger > level)
            label = self.label(f"{'BEHIND' if entering else 'EVEN'}{level}")
            branch = "s_cbranch_scc1" if entering else "s_cbranch_scc0"
            code += self.code(
                f"s_cmp_lt_u32 s[WAVE], {later.waves.start}",
                f"{branch} {label}",
                "s_barrier",
                f"{label}:",
            )
        return code

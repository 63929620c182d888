"""The LDS part of the machine code audit: follow paths, collect findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from mlagen.audit.gfx950.findings import Finding
from mlagen.audit.gfx950.lds.order import Race, races
from mlagen.audit.gfx950.lds.paths import Explorer, Run
from mlagen.audit.gfx950.lds.program import Program
from mlagen.audit.gfx950.lds.report import BarrierTotal, LdsOptions, LdsReport
from mlagen.audit.gfx950.lds.usage import accesses, bounds
from mlagen.binary.code_object import KernelCode
from mlagen.errors import ConfigError
from mlagen.targets import GFX950

_LEAST_RUNS = 6
"""Sets of paths that are followed in any case: all the loop counts of `paths`."""
_QUIET, _PATIENT = 3, 12
"""Runs without a new edge after which no more is expected: where every block that matters was
reached, and where some was not."""


def check_lds(kernel: KernelCode, waves: int, options: LdsOptions | None = None) -> LdsReport:
    """Order, bounds, barriers and bank phases of LDS for a workgroup of `waves` waves.

    Raises ConfigError when the block does not make that many waves.
    """
    options = options or LdsOptions()
    lanes = GFX950.wave_size
    block = options.block or (waves * lanes, 1, 1)
    threads = block[0] * block[1] * block[2]
    if waves < 1 or -(-threads // lanes) != waves:
        raise ConfigError(
            f"a block of {block[0]} x {block[1]} x {block[2]} threads makes "
            f"{-(-threads // lanes)} waves of {lanes}, not {waves}",
            hint="give the block that the kernel is launched with",
        )
    if threads % lanes:
        raise ConfigError(
            f"a block of {threads} threads leaves lanes of its last wave off; the audit of LDS "
            f"takes whole waves of {lanes}",
        )
    program = Program(kernel)
    if not program.seen and not program.undescribed:
        barriers = any(i.mnemonic == "s_barrier" for i in kernel.instructions)
        if not barriers:
            return LdsReport((), (), (), (), 0, 0, (0, len(program.flow.blocks)), (0, 0))
    explorer = Explorer(program, waves, block, options.max_steps)
    told = _Told(program)
    number, quiet = 0, 0
    while number < options.runs and (
        number < _LEAST_RUNS or quiet < (_PATIENT if explorer.missed() else _QUIET)
    ):
        before = len(explorer.edges)
        told.add(number, explorer.run(number))
        quiet = quiet + 1 if len(explorer.edges) == before else 0
        number += 1
    return _report(program, explorer, told, number, options)


@dataclass
class _Told:
    """What the runs so far have shown: one finding a rule and pair of stretches of code between
    barriers. `pairs`: all the pairs of instructions that it stands for."""

    program: Program
    findings: dict[tuple[object, ...], Finding] = field(default_factory=dict)
    pairs: dict[tuple[object, ...], set[tuple[int, int]]] = field(default_factory=dict)
    barriers: list[BarrierTotal] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def add(self, number: int, run: Run) -> None:
        if run.stopped:
            self._say(f"a path was given up: {run.stopped}")
        met: set[tuple[object, ...]] = set()
        for race in races(run.waves):
            earlier, later = race.earlier.site.pc, race.later.site.pc
            between = (self.program.stretch[earlier], self.program.stretch[later])
            key = (race.rule, race.newer >= 0, *between)
            known = self.findings.get(key)
            if known is None or (known.severity == "advice" and key not in met):
                # One that nothing speaks against tells more.
                found = self._finding(race, run)
                if known is None or found.severity == "error":
                    self.findings[key] = found
                met.add(key)
            self.pairs.setdefault(key, set()).add((earlier, later))
        if not run.stopped:
            self._count_barriers(number, run)

    def all_findings(self) -> Iterator[Finding]:
        for key, finding in self.findings.items():
            more = len(self.pairs.get(key, ())) - 1
            if more > 0:
                message = f"{finding.message}; {more} more such pairs between the same barriers"
                finding = replace(finding, message=message)
            yield finding

    def _say(self, what: str) -> None:
        if what not in self.unchecked:
            self.unchecked.append(what)

    def _count_barriers(self, number: int, run: Run) -> None:
        totals: dict[int, list[int]] = {}
        for wave in run.waves:
            totals.setdefault(wave.epoch, []).append(wave.number)
        for total, waves in sorted(totals.items()):
            self.barriers.append(BarrierTotal(tuple(waves), total, number))
        if len(totals) == 1:
            return
        counts = ", ".join(
            f"waves {', '.join(map(str, waves))} pass {total}" for total, waves in totals.items()
        )
        shared = frozenset.intersection(*run.asked)
        loose = [
            condition
            for asked in run.asked
            for condition in asked - shared
            if any(leaf.args[0] not in ("kernarg", "workgroup") for leaf in condition.leaves)
        ]
        if loose:
            self._say(
                f"barrier totals differ on a path ({counts}), but the waves decide by values that "
                "may be related in ways the audit does not see"
            )
            return
        last = self.program.flow.instructions[-1]
        self.findings.setdefault(
            ("barrier-unequal",),
            Finding(
                rule="barrier-unequal",
                severity="error",
                kernel=self.program.kernel.name,
                pc=next(
                    (i.offset for i in self.program.flow.instructions if i.mnemonic == "s_barrier"),
                    last.offset,
                ),
                asm="s_barrier",
                other_pc=None,
                other_asm="",
                resource="barriers of the workgroup",
                needs="the same number of s_barrier on every wave's path",
                message=f"{counts} barriers{_witness(run)}",
            ),
        )

    def _finding(self, race: Race, run: Run) -> Finding:
        earlier, later = race.earlier.site, race.later.site
        words = self.program.footprints.words(race.mask)
        unit = self.program.footprints.unit
        resource = f"LDS bytes {words[0]:#x}..{words[-1] + unit - 1:#x}"
        counter = "vmcnt" if earlier.kind == "dma" else "lgkmcnt"
        if race.newer >= 0:
            needs = f"{counter}({race.newer}) before it"
            why = f"wave {race.waves[0]} has no wait between them"
        else:
            needs = f"a wait ({counter}) of wave {race.waves[0]}, then s_barrier, between them"
            done = race.earlier.done
            why = (
                f"waves {race.waves[0]} and {race.waves[1]} have no barrier between the wait that "
                f"covers the first (after barrier {done}) and the second (after barrier "
                f"{race.later.issued})"
                if done >= race.later.issued
                else "nothing orders them"
            )
        doubts = _doubts(race, run)
        return Finding(
            rule=race.rule,
            severity="advice" if doubts else "error",
            kernel=self.program.kernel.name,
            pc=later.pc,
            asm=str(later.ins),
            other_pc=earlier.pc,
            other_asm=str(earlier.ins),
            resource=resource,
            needs=needs,
            message=f"{why}{doubts}{_witness(run)}",
        )


def _doubts(race: Race, run: Run) -> str:
    """Why a race may not matter, "" where nothing speaks against it."""
    loose = run.decisions.loose()
    if loose:
        return f"; the path rests on values that are not followed ({loose})"
    overtaken = race.earlier.site.kind == "read" and race.later.site.kind == "dma"
    if overtaken and race.earlier.issued < race.later.issued:
        return (
            "; the read was issued before that barrier and only waited for after it: it is safe "
            "as far as it is faster than a load from memory"
        )
    return ""


def _witness(run: Run) -> str:
    said = run.decisions.says()
    return f"; on the path of {said}" if said else ""


def _report(
    program: Program, explorer: Explorer, told: _Told, runs: int, options: LdsOptions
) -> LdsReport:
    flow = program.flow
    asked = program.kernel.descriptor.lds_bytes + options.dynamic_lds
    found = sorted(
        (*told.all_findings(), *bounds(program, asked)),
        key=lambda f: (f.pc, f.other_pc or 0, f.rule),
    )
    unchecked = list(told.unchecked)
    for pc in flow.indirect:
        unchecked.append(f"{pc:#x}: an indirect jump is not followed")
    for pc, text in program.undescribed.items():
        unchecked.append(f"{pc:#x}: {text}: its LDS bytes are not described")
    for pc, why in program.other.items():
        unchecked.append(f"{pc:#x}: {why}")
    for site, seen in program.seen.items():
        if seen.unknown:
            unchecked.append(f"{site.pc:#x}: {site.ins}: LDS address not known")
        if seen.masked:
            unchecked.append(f"{site.pc:#x}: {site.ins}: active lanes not known")
    for block in explorer.missed():
        first = flow.instructions[flow.blocks[block].first]
        unchecked.append(f"{first.offset:#x}: no path that was followed gets here")
    edges = {(b.index, after) for b in flow.blocks for after in b.successors}
    used = max((seen.end for seen in program.seen.values()), default=0)
    return LdsReport(
        findings=tuple(found),
        unchecked=tuple(unchecked),
        accesses=accesses(program),
        barriers=tuple(told.barriers),
        lds_bytes_used=used,
        runs=runs,
        blocks=(len(explorer.reached), len(flow.order)),
        edges=(sum(e in explorer.edges for e in edges), len(edges)),
    )

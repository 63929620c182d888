"""The LDS part of the machine code audit: follow paths, collect findings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from mlagen.audit.gfx950.budget import Budget, OutOfSteps
from mlagen.audit.gfx950.findings import Finding, InstructionPair
from mlagen.audit.gfx950.lds.early import any_too_few
from mlagen.audit.gfx950.lds.exchanges import LaneExchange, Taken
from mlagen.audit.gfx950.lds.expressions import Scalar
from mlagen.audit.gfx950.lds.lacking import wait_before_barrier, weak_waits
from mlagen.audit.gfx950.lds.lds_findings import BarrierTotal, LdsOptions, LdsReport
from mlagen.audit.gfx950.lds.lds_program import LdsProgram
from mlagen.audit.gfx950.lds.order import Race, races
from mlagen.audit.gfx950.lds.paths import Explorer, Run
from mlagen.audit.gfx950.lds.sites import Site
from mlagen.audit.gfx950.lds.sources import Written
from mlagen.audit.gfx950.lds.usage import accesses, bounds, unknown
from mlagen.audit.gfx950.lds.wave import NEVER
from mlagen.audit.gfx950.lds.whole import UNKNOWN, WHOLE, Partial, partial_lanes
from mlagen.audit.gfx950.weak import WeakWait, let_through, weakest
from mlagen.binary.code_object import KernelCode
from mlagen.binary.effects import PERMLANE
from mlagen.binary.exchanges import off_lane_gives
from mlagen.errors import ConfigError
from mlagen.severity import ERROR, LETTER, Severity, rank
from mlagen.targets.gfx950.limits import GFX950

_FINDING_STEPS = 500
_LEAST_RUNS = 6
"""Sets of paths that are followed in any case: all the loop counts of `paths`."""
_WHOLE = "EXEC may turn lanes off where it comes about in ways that are not followed"
_EXCHANGED = "lanes that exchange data may be off where values that are not constants make EXEC"
_SAME = "waves that write the same LDS by one instruction may write different values there"
_LOOSE = "branches by values that code computes in ways that are not followed may go either way"
_LOOKS = 8
"""Executions of one racing pair of which each is asked which wait is too weak."""
_QUIET, _PATIENT = 6, 12
"""Runs without a new edge after which no more is expected: where every block that matters was
reached, and where some was not."""


def check_lds(
    kernel: KernelCode,
    waves: int,
    options: LdsOptions | None = None,
    budget: Budget | None = None,
) -> LdsReport:
    """Order, bounds, barriers and bank phases of LDS for a workgroup of `waves` waves.

    Where `budget` ends, so do the paths, and the report is `cut`. Raises ConfigError when the block
    does not make that many waves, OutOfSteps when not even the code could be read.
    """
    budget = budget or Budget("LDS")
    options = options or LdsOptions()
    lanes = GFX950.wave_size
    block = options.launch.block or (waves * lanes, 1, 1)
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
    report, doubled = _follow(LdsProgram(kernel, budget, options.launch), waves, block, options)
    if doubled and not report.cut:
        # Two waves copy or write to the same place: find out whether they put the same there.
        with suppress(OutOfSteps):
            program = LdsProgram(kernel, budget, options.launch, sourced=True)
            report, _ = _follow(program, waves, block, options)
    return report


def _follow(
    program: LdsProgram, waves: int, block: tuple[int, int, int], options: LdsOptions
) -> tuple[LdsReport, bool]:
    """The report, and whether two waves' loads to LDS were found to overlap."""
    kernel = program.kernel
    if not program.seen and not program.undescribed and not program.exchanges:
        barriers = any(i.mnemonic == "s_barrier" for i in kernel.instructions)
        if not barriers:
            return LdsReport((), (), (), (), 0, 0, (0, len(program.flow.blocks)), (0, 0)), False
    explorer = Explorer(program, waves, block, options.max_steps)
    told = _Told(program)
    number, quiet, cut = 0, 0, False
    while number < options.runs and (
        number < _LEAST_RUNS or quiet < (_PATIENT if explorer.missed() else _QUIET)
    ):
        before = len(explorer.edges)
        try:
            told.add(number, explorer.run(number))
        except OutOfSteps:
            cut = True
            break
        quiet = quiet + 1 if len(explorer.edges) == before else 0
        number += 1
    return _report(program, explorer, told, number, options, cut), told.doubled


@dataclass
class _Told:
    """What the runs so far have shown: one finding a rule, pair of stretches of code between
    barriers and wait that is too weak. `pairs`: the places of all pairs of instructions that it
    stands for. `looks`: how often a pair was looked at, and the wait that was too weak last."""

    program: LdsProgram
    findings: dict[tuple[object, ...], Finding] = field(default_factory=dict)
    pairs: dict[tuple[object, ...], dict[tuple[int, int], InstructionPair]] = field(
        default_factory=dict
    )
    least: dict[tuple[object, ...], int] = field(default_factory=dict)
    looks: dict[tuple[object, ...], tuple[int, WeakWait | None]] = field(default_factory=dict)
    barriers: list[BarrierTotal] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    doubled: bool = False  # two waves' loads to LDS overlap, or one write of theirs

    def add(self, number: int, run: Run) -> None:
        if run.stopped and not run.decisions.asks_for_many():
            self._say(f"a path was given up: {run.stopped}")
        met: set[tuple[object, ...]] = set()
        for race in races(run.waves):
            earlier, later = race.earlier.site.pc, race.later.site.pc
            self.doubled |= race.earlier.site.kind == race.later.site.kind == "dma"
            self.doubled |= _written_twice(race)
            between = (self.program.stretch[earlier], self.program.stretch[later])
            weak = self._weak(race, run)
            key = (race.rule, race.newer >= 0, *between, weak and weak.pc)
            known = self.findings.get(key)
            pairs = self.pairs.setdefault(key, {})
            new = (earlier, later) not in pairs
            stricter = weak is not None and weak.newer < self.least.get(key, NEVER)
            doubtful = known is not None and known.severity != ERROR and key not in met
            if new or stricter or doubtful:
                self.program.budget.spend(_FINDING_STEPS)
                found = self._finding(race, run, weak)
                # One that nothing speaks against tells more, then one that asks for more.
                if (
                    known is None
                    or rank(found.severity) < rank(known.severity)
                    or (stricter and found.severity == known.severity)
                ):
                    self.findings[key] = found
                    self.least[key] = weak.newer if weak else NEVER
                met.add(key)
                pairs.setdefault((earlier, later), found.place)
        for wave in run.waves:
            for site, masks in wave.masked.items():
                self._judge_masks(site, masks, run)
            for exchange, taken in wave.taken.items():
                self._judge_exchange(exchange, taken, run)
        if not run.stopped:
            self._count_barriers(number, run)

    def _weak(self, race: Race, run: Run) -> WeakWait | None:
        """The wait that is too weak, None where none is; of a pair that was looked at often, the
        last one."""
        pair = (race.rule, race.earlier.site.pc, race.later.site.pc)
        times, last = self.looks.get(pair, (0, None))
        if times < _LOOKS:
            self.program.budget.spend(len(run.waves[race.waves[0]].waits) // 16 + 1)
            last = weakest(weak_waits(race, run.waves))
            self.looks[pair] = (times + 1, last)
        return last

    def all_findings(self) -> Iterator[Finding]:
        wrong = {_topic(key) for key, found in self.findings.items() if found.severity == ERROR}
        for key, finding in self.findings.items():
            if finding.severity != ERROR and _topic(key) in wrong:
                continue  # no excuse where an error speaks of the same
            pairs = self.pairs.get(key, {})
            others = [p for pair, p in pairs.items() if pair != (finding.other_pc, finding.pc)]
            if others:
                more = len(others)
                noun = "pair" if more == 1 else "pairs"
                message = f"{finding.message}; {more} more such {noun} between the same barriers"
                places = (finding.place, *others)
                finding = replace(finding, message=message, places=places)
            yield finding

    def _say(self, what: str) -> None:
        if what not in self.unchecked:
            self.unchecked.append(what)

    def _judge_masks(self, site: Site, masks: set[tuple[Scalar, Scalar]], run: Run) -> None:
        """A read that needs all lanes, under EXEC masks that are not known to be all ones."""
        key = ("partial-exec", site.pc)
        known = self.findings.get(key)
        if known is not None and known.severity == ERROR:
            return
        found = [partial_lanes(mask, run.decisions) for mask in masks]
        shown = next((one for one in found if isinstance(one, Partial)), None)
        if shown is None and UNKNOWN not in found:
            return
        message = f"{site.ins} at {site.pc:#x} moves data between lanes and needs all of them on"
        if shown is not None:
            message += f"; {shown.off} are off" + (f" with {shown.by}" if shown.by else "")
            message += _witness(run)
        loose = shown is None or run.decisions.loose()
        self.findings[key] = Finding.at(
            "partial-exec", ERROR, self.program.kernel.name, (site.ins, None), resource="EXEC",
            needs="s_mov_b64 exec, -1 before it", message=message, guess=_WHOLE if loose else "",
        )  # fmt: skip

    def _judge_exchange(self, exchange: LaneExchange, found: set[Taken], run: Run) -> None:
        """Lanes that take data from others which are off, or may be."""
        ins, key = exchange.ins, ("off-lane", exchange.ins.offset)
        known = self.findings.get(key)
        if known is not None and known.severity == ERROR:
            return
        swapped = ins.mnemonic in PERMLANE
        shown = next((one for one in found if one.lanes), None)
        if shown is None and (swapped or all(_whole(one, run) for one in found)):
            return
        message = f"{ins} at {ins.offset:#x} takes data from lanes that may be off"
        if shown is not None and shown.lanes:
            lane, source = shown.lanes[0]
            gives = "nothing published says what it gives" if swapped else off_lane_gives(ins)
            more = f", and so do {len(shown.lanes) - 1} more" if len(shown.lanes) > 1 else ""
            message = (
                f"{ins} at {ins.offset:#x}: lane {lane} takes what lane {source} holds, which is "
                f"off{more}; {gives}{_witness(run)}"
            )
        severity: Severity = LETTER if swapped else ERROR
        guess = _EXCHANGED if shown is None else _LOOSE if run.decisions.loose() else ""
        self.findings[key] = Finding.at(
            "off-lane", severity, self.program.kernel.name, (ins, None), resource="EXEC",
            needs="both lanes on", message=message, guess=guess,
        )  # fmt: skip

    def _count_barriers(self, number: int, run: Run) -> None:
        totals: dict[int, list[int]] = {}
        for wave in run.waves:
            totals.setdefault(wave.epoch, []).append(wave.number)
        for total, waves in sorted(totals.items()):
            self.barriers.append(BarrierTotal(tuple(waves), total, number))
        if not any_too_few(run.waves, self.program.working):
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
                severity=ERROR,
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

    def _finding(self, race: Race, run: Run, weak: WeakWait | None) -> Finding:
        earlier, later = race.earlier.site, race.later.site
        words = self.program.footprints.words(race.mask)
        unit = self.program.footprints.unit
        resource = f"LDS bytes {words[0]:#x}..{words[-1] + unit - 1:#x}"
        counter = "vmcnt" if earlier.kind == "dma" else "lgkmcnt"
        if weak is not None:
            needs = weak.needs
            why = f"wave {race.waves[0]}: {let_through(weak, weak_waits(race, run.waves))}"
        elif race.newer >= 0:
            needs = f"{counter}({race.newer}) before it"
            why = f"wave {race.waves[0]} has no wait between them"
        else:
            number, done = race.waves[0], race.earlier.done
            needs = f"a wait ({counter}) of wave {number}, then s_barrier, between them"
            if (wait := wait_before_barrier(race, run.waves)) is not None:
                needs = f"s_barrier behind the wait of wave {number} at {wait.pc:#x}"
            if race.earlier.issued < race.later.issued <= done:
                needs = f"a wait ({counter}) of wave {number} before barrier {race.later.issued}"
            why = (
                f"waves {race.waves[0]} and {race.waves[1]} have no barrier between the wait that "
                f"covers the first (after barrier {done}) and the second (after barrier "
                f"{race.later.issued})"
                if done >= race.later.issued
                else "nothing orders them"
            )
        loose = run.decisions.loose()
        doubts = f"; by values of {loose}" if loose else self._overtaken(race)
        severity: Severity = LETTER if doubts else ERROR
        guess = _LOOSE if loose else ""
        if _written_twice(race) and not _known_to_differ(race):
            guess = _SAME
        name, message = self.program.kernel.name, f"{why}{doubts}{_witness(run)}"
        found = Finding.at(race.rule, severity, name, (later.ins, earlier.ins), resource=resource,
                           needs=needs, message=message, guess=guess)  # fmt: skip
        return found.changing(weak)

    def _overtaken(self, race: Race) -> str:
        """Why hardware may order a race all the same, "" where nothing speaks for that."""
        earlier, later = race.earlier, race.later
        overtaken = earlier.site.kind == "read" and later.site.kind == "dma"
        late = later.site.pc in self.program.late_copies
        if overtaken and earlier.issued < later.issued and late:
            return (
                "; the read was issued before that barrier and only waited for after it: it is "
                "safe as far as it is faster than the matrix instructions between and a load from "
                "memory"
            )
        return ""


def _whole(found: Taken, run: Run) -> bool:
    """Whether nothing speaks for lanes that are off."""
    return partial_lanes(found.mask, run.decisions) == WHOLE


def _witness(run: Run) -> str:
    said = run.decisions.says()
    return f"; on the path of {said}" if said else ""


def _topic(key: tuple[object, ...]) -> tuple[object, ...]:
    """The rule and the two stretches of code, whatever would order them."""
    return (key[0], *key[2:4])


def _written_twice(race: Race) -> bool:
    """Two waves write the same bytes by one instruction, as code does of which all waves have a
    copy of the same."""
    first, second = race.earlier, race.later
    return (
        race.rule == "lds-waw"
        and first.site is second.site
        and first.site.kind == "write"
        and first.footprint == second.footprint
        and race.waves[0] != race.waves[1]
    )


def _known_to_differ(race: Race) -> bool:
    sources = (race.earlier.source, race.later.source)
    return all(isinstance(source, Written) and source.known for source in sources)


def _report(
    program: LdsProgram,
    explorer: Explorer,
    told: _Told,
    runs: int,
    options: LdsOptions,
    cut: bool,
) -> LdsReport:
    flow = program.flow
    found = sorted(
        (*told.all_findings(), *bounds(program), *unknown(program)),
        key=lambda f: (f.pc, f.other_pc or 0, f.rule),
    )
    unchecked = list(told.unchecked)
    for pc in flow.indirect:
        unchecked.append(f"{pc:#x}: an indirect jump is not followed")
    for pc, text in program.undescribed.items():
        unchecked.append(f"{pc:#x}: {text}: its LDS bytes are not described")
    for pc, why in program.other.items():
        unchecked.append(f"{pc:#x}: {why}")
    for block in explorer.missed():
        first = flow.instructions[flow.blocks[block].first]
        unchecked.append(f"{first.offset:#x}: no path that was followed gets here")
    edges = {(b.index, after) for b in flow.blocks for after in b.successors}
    used = max((max(x.end, x.enlarged_end) for x in program.seen.values()), default=0)
    return LdsReport(
        findings=tuple(found),
        unchecked=tuple(unchecked),
        accesses=accesses(program),
        barriers=tuple(told.barriers),
        lds_bytes_used=used,
        runs=runs,
        blocks=(len(explorer.reached), len(flow.order)),
        edges=(sum(e in explorer.edges for e in edges), len(edges)),
        cut=cut,
    )

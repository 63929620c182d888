"""A view of a schedule as the rows of tables for a terminal. Every cell is text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from mlagen.artifact.maps import MemoryMap, RegisterMap
from mlagen.inspect.tables import CodeTable, area_table, tmem_table, without_empty_columns
from mlagen.schedule_view.model import UNITS, Appearance, ScheduleRow, ScheduleView
from mlagen.targets.registry import AMD, vendor_of

_ONE_COUNTER = re.compile(r"^(vmcnt|lgkmcnt)\((\d+)\)$")


def facts(view: ScheduleView) -> list[tuple[str, str]]:
    """(name, value) lines at the head."""
    lines = [
        ("schedule", f"{view.name} for {view.target} ({view.schedule_file})"),
        ("", view.title),
        ("problem", ", ".join(f"{k}={v}" for k, v in view.problem.items()) or "no fields"),
        ("knobs", ", ".join(f"{name}={value}" for name, value in view.knobs.items()) or "none"),
        ("proof", view.proof.extent()),
        *(("", text) for text in view.proof.reasons),
    ]
    lines += [(f"{'loop' if not n else ''}", note) for n, note in enumerate(view.notes)]
    lines += [(section, "; ".join(names)) for section, names in view.around.items()]
    return lines


def tables(view: ScheduleView, *, everything: bool = False) -> list[CodeTable]:
    """All tables that have rows, in the order they are printed. `everything`: scalar registers
    too."""
    made = [
        role_table(view),
        cluster_table(view),
        memory_table(view),
        tmem_table(view.map.tmem),
        exchange_table(view),
        register_table(view, everything=everything),
        limit_table(view),
    ]
    return [without_empty_columns(table) for table in made if table.rows]


def role_table(view: ScheduleView) -> CodeTable:
    unit = vendor_of(view.target).group
    rows = [
        (
            role.name,
            f"{unit} {role.first}..{role.last}",
            str(role.threads or ""),
            str(role.registers or ""),
            str(role.stagger or ""),
        )
        for role in view.map.roles
    ]
    columns = ("role", "runs on", "threads", "registers a thread", "lags by")
    return CodeTable("roles", columns, tuple(rows))


def cluster_table(view: ScheduleView) -> CodeTable:
    """The schedule's table: one row an operation, with what is derived for it."""
    rows = []
    before = ""
    for row in view.rows:
        cluster = row.cluster or (row.roles[0] if row.roles else "")
        counts = (str(row.units.get(unit, "")) for unit in UNITS)
        rows.append(
            (
                cluster if cluster != before else "",
                "" if cluster in row.roles else ", ".join(row.roles) or "all",
                f"{row.operation}" + (f" | {row.beside}" if row.beside else ""),
                *counts,
                waits_text(row),
                appearances(row, row.prologue),
                appearances(row, row.drain),
            )
        )
        before = cluster
    first = "cluster" if any(row.cluster for row in view.rows) else "role"
    memory = vendor_of(view.target).memory.lower()
    matrix = "mfma" if memory == "lds" else "mma" if view.map.tmem else "wgmma"
    units = (matrix, "valu", "trans", memory, "dma", "other")
    columns = (first, "by", "operation", *units, "waits", "prologue, i =", "drain, i =")
    title = "the loop, for tile i: instructions and waits of a steady pass"
    if any(row.beside for row in view.rows):
        title += " (a | b: a, interleaved with b)"
    return CodeTable(title, columns, tuple(rows))


def waits_text(row: ScheduleRow) -> str:
    if not row.by_hand:
        return compact(row.waits)
    return f"{compact(row.waits) or 'none'} by hand, needed: {row.needed or 'none'}"


def compact(waits: Iterable[str]) -> str:
    """Waits one after another; a falling run of one counter as "lgkmcnt 14..0 (15)"."""
    told = []
    for counter, run in groupby(waits, lambda wait: (m := _ONE_COUNTER.match(wait)) and m[1]):
        texts = list(run)
        if counter is None or len(texts) == 1:
            told += texts
            continue
        counts = [int(text[len(counter) + 1 : -1]) for text in texts]
        low, high = min(counts), max(counts)
        span = f"{counter} {high}..{low}" if low < high else f"{counter}({low})"
        told.append(f"{span} ({len(counts)} times)")
    return "; ".join(told)


def appearances(row: ScheduleRow, places: Sequence[Appearance]) -> str:
    """The passes of prologue or drain that a row appears in, with waits that are not the loop's."""
    told = []
    for waits, run in groupby(places, lambda place: place.waits):
        passes = [place.at for place in run]
        text = passes[0] if len(passes) == 1 else f"{passes[0]}..{passes[-1]}"
        told.append(f"{text} {_compared(waits, row.waits)}".rstrip())
    return ", ".join(told)


def _compared(waits: Sequence[str], steady: Sequence[str]) -> str:
    """What waits are beside those of a steady pass; "" where they are the same."""
    if waits == steady:
        return ""
    more = [wait for wait in waits if wait not in steady]
    if steady and set(steady) <= set(waits):
        return f"also {compact(more)}"
    return compact(waits) or "no wait"


def memory_table(view: ScheduleView) -> CodeTable:
    areas = sorted(view.map.memory, key=lambda area: (area.base, area.kind, area.name))
    what = vendor_of(view.target).memory
    return area_table(f"{what} layout", ((area, ", ".join(_noted(area))) for area in areas))


def _noted(area: MemoryMap) -> Iterator[str]:
    if area.comment:
        yield area.comment
    if area.cycles:
        yield f"{area.cycles} LDS cycles a wave and tile, {area.ideal} without conflicts"


def exchange_table(view: ScheduleView) -> CodeTable:
    rows = [
        (
            h.name,
            h.producer,
            ", ".join(h.consumers),
            str(h.depth),
            str(h.bytes),
            f"full {h.full:#x}" + (f", empty {h.empty:#x}" if h.empty >= 0 else "")
            if h.named < 0
            else f"named barrier {h.named}",
            "resident" if h.resident else f"{h.releases} releases a slot" if h.releases else "",
        )
        for h in view.map.handoffs
    ]
    columns = ("", "producer", "consumers", "slots", "bytes", "barriers", "")
    return CodeTable("pipelines and exchanges", columns, tuple(rows))


def register_table(view: ScheduleView, *, everything: bool) -> CodeTable:
    """Blocks in the order of their registers; a ring of slots is one. `everything`: scalars too."""
    blocks: dict[str, list[RegisterMap]] = {}
    for regs in view.map.registers:
        if everything or regs.file != "s":
            blocks.setdefault(regs.block or regs.name, []).append(regs)
    rows = []
    for name, slots in blocks.items():
        first, total = slots[0], sum(regs.count for regs in slots)
        last = f"..{first.file}{first.first + total - 1}" if total > 1 else ""
        rows.append(
            (
                name,
                str(total),
                f"{len(slots)} x {first.count}" if len(slots) > 1 else "",
                f"{first.file}{first.first}{last}" if first.first >= 0 else first.file,
                first.bank if first.bank != name else "",
                first.comment,
            )
        )
    columns = ("block", "registers", "slots", "where", "shares", "use")
    title = "registers of a thread, by name; ptxas drops what a role does not use"
    if vendor_of(view.target) is AMD:
        title = "registers of a lane"
    return CodeTable(title, columns, tuple(rows))


def limit_table(view: ScheduleView) -> CodeTable:
    rows = [(use.of, str(use.used), str(use.limit), str(use.limit - use.used)) for use in view.uses]
    return CodeTable("budget", ("of", "used", "limit", "left"), tuple(rows))

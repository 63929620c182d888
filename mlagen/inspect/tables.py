"""An inspection as the rows of tables for a terminal. Every cell is text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlagen.artifact.maps import MemoryMap, TmemMap
from mlagen.inspect.model import PIPES, CodeCluster, Inspection, LdsUse, MemoryArea, RegisterBlock
from mlagen.targets.registry import AMD, vendor_of

MARKS = {"write": "W", "read": "R", "both": "X", "through": "-"}
SHORT = {
    "matrix": "mfma",
    "vector": "valu",
    "transcendental": "trans",
    "barrier": "barr",
    "scalar": "salu",
    "branch": "br",
}


@dataclass(frozen=True, slots=True)
class CodeTable:
    """A table with its title."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def facts(report: Inspection) -> list[tuple[str, str]]:
    """(name, value) lines at the head."""
    where = "artifact" if report.origin == "artifact" else "binary, lifted from its code"
    problem = [(n.split(" ", 1)[1], v) for n, v in report.facts if n.startswith("problem ")]
    knobs = [(n.split(" ", 1)[1], v) for n, v in report.facts if n.startswith("knob ")]
    tools = [(n.split(" ", 1)[1], v) for n, v in report.facts if n.startswith("tool ")]
    lines = [("kernel", f"{report.name} for {report.target}"), ("from", f"{report.path} ({where})")]
    for name, group, mark in (
        ("problem", problem, "="),
        ("knobs", knobs, "="),
        ("made by", tools, " "),
    ):
        if group:
            lines.append((name, ", ".join(f"{key}{mark}{value}" for key, value in group)))
    shown = {"kernel", "problem", "flags"}
    lines += [(n, v) for n, v in report.facts if " " not in n and n not in shown]
    lines.append(("takes", ", ".join(f"{n} {amount}" for n, amount in report.resources)))
    return lines


def shown_clusters(report: Inspection, *, everything: bool) -> tuple[CodeCluster, ...]:
    """The clusters of the loops, or all where there is no loop or all are asked for."""
    return report.clusters if everything or not report.looped else report.looped


def tables(report: Inspection, *, everything: bool = False) -> list[CodeTable]:
    """All tables that have rows, in the order they are printed."""
    clusters = shown_clusters(report, everything=everything)
    made = [
        role_table(report),
        loop_table(report),
        timeline_table(report),
        cluster_table(report, clusters),
        register_table(report, clusters, everything=everything),
        memory_table(report),
        tmem_table(report.tmem),
        handoff_table(report),
        lds_table(report),
        wait_table(report, clusters),
        mix_table(report),
    ]
    return [without_empty_columns(table) for table in made if table.rows]


def without_empty_columns(table: CodeTable) -> CodeTable:
    """Columns in which no row has anything to say are left out."""
    kept = [n for n in range(len(table.columns)) if any(row[n] for row in table.rows)]
    return CodeTable(
        table.title,
        tuple(table.columns[n] for n in kept),
        tuple(tuple(row[n] for n in kept) for row in table.rows),
    )


def role_table(report: Inspection) -> CodeTable:
    rows = [
        (
            role.name,
            f"{role.unit}s {role.first}..{role.last}",
            str(role.stagger) if role.stagger else "",
            str(role.registers) if role.registers else "",
            role.note,
        )
        for role in report.roles
    ]
    return CodeTable("roles", ("role", "runs on", "lags by", "registers", ""), tuple(rows))


def loop_table(report: Inspection) -> CodeTable:
    rows = [
        (
            loop.name,
            place(report, loop.first),
            place(report, loop.last),
            ", ".join(loop.roles),
            "varies" if loop.barriers is None else str(loop.barriers),
        )
        for loop in report.loops
    ]
    if vendor_of(report.target) is not AMD:
        return CodeTable("loops", ("loop", "from", "to", "roles"), tuple(row[:4] for row in rows))
    return CodeTable("loops", ("loop", "from", "to", "roles", "barriers a pass"), tuple(rows))


def timeline_table(report: Inspection) -> CodeTable:
    """One row for the time between two barriers, one column a role."""
    line = report.timeline
    rows = []
    for column in range(line.columns):
        cells = [
            "; ".join(
                f"{short_name(c)} {c.kind}"
                for c in (report.cluster(id) for id in row[column])
                if c.kind != "control"
            )
            for _, row in line.rows
        ]
        rows.append((str(column), *cells))
    return CodeTable(
        "what meets between two barriers of the loop",
        ("", *(role for role, _ in line.rows)),
        tuple(rows),
    )


def short_name(cluster: CodeCluster) -> str:
    return cluster.id if cluster.name in ("control", cluster.id) else f"{cluster.name} {cluster.id}"


def cluster_table(report: Inspection, clusters: Sequence[CodeCluster]) -> CodeTable:
    """Clusters that are alike in everything but their place are one row."""
    pipes = [pipe for pipe in PIPES if any(c.count(pipe) for c in clusters)]
    groups: dict[tuple[object, ...], list[CodeCluster]] = {}
    for cluster in clusters:
        texts = tuple(wait.text for wait in cluster.waits)
        named = "" if cluster.name == cluster.id else cluster.name
        where = cluster.loop if named and cluster.loop else cluster.section
        alike = (cluster.roles, cluster.loop, cluster.kind, cluster.end, cluster.mix, texts)
        key = (named or cluster.id, where, *alike)
        groups.setdefault(key, []).append(cluster)
    rows = []
    everyone = tuple(role.name for role in report.roles)
    for group in groups.values():
        first = group[0]
        more = f" and {len(group) - 1} alike" if len(group) > 1 else ""
        rows.append(
            (
                first.id,
                f"{first.section}{more}",
                "" if first.name == first.id else first.name,
                "all" if first.roles == everyone else ", ".join(first.roles) or "none",
                first.kind,
                first.end,
                *(str(first.count(pipe)) if first.count(pipe) else "" for pipe in pipes),
                waits_text(first),
            )
        )
    columns = ("", "section", "cluster", "roles", "does", "ends in")
    shown = tuple(SHORT.get(pipe, pipe) for pipe in pipes)
    return CodeTable("clusters", (*columns, *shown, "waits"), tuple(rows))


def waits_text(cluster: CodeCluster) -> str:
    """The wait before the closing barrier, and how many stand before it."""
    if not cluster.waits:
        return ""
    last = cluster.waits[-1]
    closing = last.text if last.before.startswith("s_barrier") else ""
    others = len(cluster.waits) - bool(closing)
    if not closing:
        return f"{others} inside"
    return f"{closing}, {others} inside" if others else closing


def register_table(
    report: Inspection, clusters: Sequence[CodeCluster], *, everything: bool
) -> CodeTable:
    rows = [
        (
            block.name if block.declared else "",
            block.registers,
            block.bank,
            picture(block, clusters),
            block.use,
        )
        for block in report.blocks
        if everything or (block.file != "s" and alive_in(block, clusters))
    ]
    span = f"{clusters[0].id} to {clusters[-1].id}" if clusters else "none"
    title = (
        "registers (W written, R read, X both, - alive and left alone, . not alive; one letter a "
        f"cluster, {span} in order)"
    )
    return CodeTable(title, ("block", "registers", "shares", "alive", "use"), tuple(rows))


def picture(block: RegisterBlock, clusters: Sequence[CodeCluster]) -> str:
    """One letter a cluster."""
    held = dict(block.touched)
    return "".join(MARKS[held[c.id]] if c.id in held else "." for c in clusters)


def alive_in(block: RegisterBlock, clusters: Sequence[CodeCluster]) -> bool:
    held = dict(block.touched)
    return any(c.id in held for c in clusters)


def memory_table(report: Inspection) -> CodeTable:
    used = covered(report.memory)
    what = vendor_of(report.target).memory
    title = f"{what}, {used} bytes in these areas of {report.memory_bytes} taken"
    return area_table(title, ((area, area.note) for area in report.memory))


def area_table(title: str, areas: Iterable[tuple[MemoryArea | MemoryMap, str]]) -> CodeTable:
    """Where areas lie, each with a note."""
    columns = ("area", "kind", "bytes", "slots", "a slot", "layout", "")
    rows = [
        (a.name, a.kind, f"{a.base:#07x}..{a.base + a.slots * a.slot_bytes - 1:#07x}",
         str(a.slots), str(a.slot_bytes), a.layout, note)
        for a, note in areas
    ]  # fmt: skip
    return CodeTable(title, columns, tuple(rows))


def tmem_table(areas: Iterable[TmemMap]) -> CodeTable:
    """Where columns of tensor memory lie."""
    rows = [
        (a.name, f"{a.column}..{_last_column(a)}", str(a.slots), str(a.columns), a.comment)
        for a in areas
    ]
    columns = ("region", "columns", "slots", "a slot", "")
    return CodeTable("TMEM layout, all 128 lanes", columns, tuple(rows))


def _last_column(area: TmemMap) -> int:
    return area.column + (area.slots - 1) * (area.stride or area.columns) + area.columns - 1


def covered(areas: Sequence[MemoryArea]) -> int:
    """Bytes that lie in any of the areas; some lie over one another."""
    total = end = 0
    for area in sorted(areas, key=lambda area: area.base):
        total += max(0, area.base + area.bytes - max(end, area.base))
        end = max(end, area.base + area.bytes)
    return total


def handoff_table(report: Inspection) -> CodeTable:
    rows = [
        (h.name, h.producer, ", ".join(h.consumers), str(h.depth), str(h.bytes), h.barrier, h.note)
        for h in report.handoffs
    ]
    columns = ("pipeline", "from", "to", "depth", "bytes", "barriers", "")
    return CodeTable("pipelines", columns, tuple(rows))


def lds_table(report: Inspection) -> CodeTable:
    rows = [
        (
            use.mnemonic,
            use.address,
            str(use.count),
            "" if use.lowest is None else f"{use.lowest:#07x}..{use.highest:#07x}",
            ", ".join(use.areas),
            cost(use),
            conflicts(use),
            use.unknown,
        )
        for use in report.lds
    ]
    columns = ("access", "address", "count", "bytes", "areas", "cycles", "conflicts", "")
    return CodeTable("LDS accesses", columns, tuple(rows))


def cost(use: LdsUse) -> str:
    return "" if use.cycles is None else f"{use.cycles} of {use.ideal}"


def conflicts(use: LdsUse) -> str:
    """The phases in which some bank serves more than one dword."""
    if use.cycles is None:
        return "?"
    found = [f"phase {n}: {max(phase)}-way" for n, phase in enumerate(use.banks) if max(phase) > 1]
    return ", ".join(found) or "none"


def wait_table(report: Inspection, clusters: Sequence[CodeCluster]) -> CodeTable:
    rows = [
        (
            place(report, wait.at),
            c.id,
            c.title.strip(),
            wait.text,
            wait.source,
            wait.needed if wait.source != "binary" else "?",
            wait.slack or ("" if wait.source != "binary" else "?"),
            wait.before,
        )
        for c in clusters
        for wait in c.waits
    ]
    columns = ("at", "", "cluster", "wait", "source", "needed", "slack", "before")
    return CodeTable("waits", columns, tuple(rows))


def mix_table(report: Inspection) -> CodeTable:
    """Instructions of each pipe: in the loops, and in all of the code."""
    looped, total = report.mix(report.looped), report.mix()
    rows: list[tuple[str, ...]] = [
        (pipe, str(looped[pipe]), str(total[pipe])) for pipe in PIPES if total[pipe]
    ]
    rows.append(("all", str(sum(looped.values())), str(sum(total.values()))))
    return CodeTable("instructions in the code", ("pipe", "in loops", "all"), tuple(rows))


def place(report: Inspection, at: int) -> str:
    """Where an instruction stands: its offset, or its line of the `.ptx`."""
    return f"{at:#x}" if vendor_of(report.target) is AMD else f"line {at}"

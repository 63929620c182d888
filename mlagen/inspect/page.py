"""An inspection, or the difference of two, as one HTML page that needs nothing else.

Geometry is worked out here; the templates beside this module print it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from mlagen.disk import write_file
from mlagen.inspect.compare import CodeComparison
from mlagen.inspect.model import PIPES, CodeCluster, Inspection
from mlagen.inspect.tables import (
    SHORT,
    alive_in,
    conflicts,
    cost,
    facts,
    place,
    short_name,
    shown_clusters,
    waits_text,
)
from mlagen.pages import legend, style

WIDTH = 1040  # of drawings, in px
LEFT = 190  # of it, for names
_ROW, _CELL_MAX = 15, 46
_BANK_CELL = 9


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with its class, the text inside and what a pointer over it tells."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    tip: str
    text: str = ""
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Drawing:
    """An SVG: its size, boxes and texts (x, y, class, text)."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    texts: tuple[tuple[float, float, str, str], ...]


def write_page(report: Inspection, file: Path | str) -> None:
    """Write the page of an inspection. WriteError where the file cannot be written."""
    write_file(file, render_page(report).encode())


def write_diff_page(comparison: CodeComparison, file: Path | str) -> None:
    """Write the page of a difference."""
    write_file(file, render_diff(comparison).encode())


def render_page(report: Inspection) -> str:
    """The page of an inspection as HTML."""
    looped = shown_clusters(report, everything=False)
    return _environment().get_template("page.html.j2").render(
        report=report,
        facts=facts(report),
        used=[pipe for pipe in PIPES if report.mix()[pipe]],
        short=SHORT,
        sequences=_sequences(report, looped),
        clusters=[_row(report, cluster) for cluster in report.clusters],
        looped={cluster.id for cluster in looped},
        timeline=[
            [[_row(report, report.cluster(id)) for id in cells] for cells in column]
            for column in zip(*(row for _, row in report.timeline.rows), strict=True)
        ],
        registers=register_chart(report, looped),
        all_registers=(
            None if looped == report.clusters else register_chart(report, report.clusters)
        ),
        memory=memory_map(report),
        banks=[
            {"use": use, "drawing": bank_grid(use.banks), "cost": cost(use),
             "conflicts": conflicts(use)}
            for use in report.lds
        ],
        waits=[
            {"wait": wait, "cluster": c, "name": c.title, "place": place(report, wait.at)}
            for c in report.clusters
            for wait in c.waits
        ],
        mix=_mix(report),
        code=_code(report),
    )  # fmt: skip


def render_diff(comparison: CodeComparison) -> str:
    """The page of a difference as HTML."""
    return _environment().get_template("diff.html.j2").render(
        comparison=comparison, a=comparison.a, b=comparison.b, pipes=PIPES,
        pairs=[
            {
                "pair": pair,
                "a": pair.a and _row(comparison.a, comparison.a.cluster(pair.a)),
                "b": pair.b and _row(comparison.b, comparison.b.cluster(pair.b)),
            }
            for pair in comparison.pairs
        ],
    )  # fmt: skip


def _environment() -> jinja2.Environment:
    folder = resources.files("mlagen.inspect")
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(folder)),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"style": Markup(style()), "legend": lambda names: Markup(legend(names))}
    return made


def _row(report: Inspection, cluster: CodeCluster) -> dict[str, Any]:
    total = max(1, cluster.instructions)
    return {
        "cluster": cluster,
        "name": short_name(cluster),
        "title": cluster.title,
        "bar": [(pipe, count, round(100 * count / total, 2)) for pipe, count in cluster.mix],
        "counts": [cluster.count(pipe) for pipe in PIPES if report.mix()[pipe]],
        "waits": waits_text(cluster),
        "place": place(report, cluster.lines[0].at) if cluster.lines else "",
        "kind": cluster.kind.split(" ")[0],
    }


def _sequences(
    report: Inspection, clusters: Sequence[CodeCluster]
) -> list[tuple[str, list[dict[str, Any]]]]:
    """Each role's clusters in the order of the code, where they cannot be laid side by side."""
    if report.timeline.rows or not report.looped:
        return []
    return [
        (role.name, [_row(report, c) for c in clusters if role.name in c.roles])
        for role in report.roles
    ]


def _mix(report: Inspection) -> list[dict[str, Any]]:
    """The bars of the instruction mix: in the loops, and in all of the code."""
    bars = []
    for title, counts in (("in loops", report.mix(report.looped)), ("all", report.mix())):
        total = sum(counts.values())
        if total:
            shares = [(p, c, round(100 * c / total, 2)) for p, c in counts.items() if c]
            bars.append({"title": title, "total": total, "bar": shares})
    return bars


def _code(report: Inspection) -> str:
    """The code lines of all clusters as JSON that may stand inside a script element.

    Operations and templates are numbered: the same few stand on thousands of lines.
    """
    names: dict[str, int] = {}

    def number(text: str) -> int:
        return names.setdefault(text, len(names))

    held = {
        cluster.id: [
            [place(report, line.at), line.text, PIPES.index(line.pipe), number(line.operation),
             number(f"{line.template}:{line.template_line}" if line.template else ""),
             line.schedule_line]
            for line in cluster.lines
        ]
        for cluster in report.clusters
    }  # fmt: skip
    data = {"names": list(names), "pipes": PIPES, "schedule": report.schedule_file, "code": held}
    return msgspec.json.encode(data).decode().replace("<", "\\u003c").replace("&", "\\u0026")


def register_chart(report: Inspection, clusters: Sequence[CodeCluster]) -> Drawing:
    """Rows are register blocks, columns clusters; a row is as high as its block is large."""
    blocks = [block for block in report.blocks if alive_in(block, clusters)]
    cell = max(2.0, min(_CELL_MAX, (WIDTH - LEFT) / max(1, len(clusters))))
    top = 26
    boxes: list[Box] = []
    texts: list[tuple[float, float, str, str]] = []
    labels = cell >= 14
    for column, cluster in enumerate(clusters):
        x = LEFT + column * cell
        kind = f"k-{cluster.kind.split(' ')[0]}"
        tip = f"{cluster.id} {cluster.title}: {cluster.kind}"
        boxes.append(Box(x, 6, cell - 1, 14, kind, tip, cluster=cluster.id))
        if labels:
            name = cluster.name if len(cluster.name) * 7 < cell else cluster.id[1:]
            texts.append((x + 3, 17, "in", name))
    y = float(top)
    for block in blocks:
        height = _ROW + min(24.0, block.count / 4)
        held = dict(block.touched)
        label = f"{block.name}  {block.registers}" if block.declared else block.registers
        texts.append((0, y + height / 2 + 4, "", label))
        column = 0
        while column < len(clusters):
            touch, cluster = held.get(clusters[column].id), clusters[column]
            end = column + 1
            # What is only kept alive is one box over all the clusters that leave it alone.
            while (
                touch == "through" and end < len(clusters) and (held.get(clusters[end].id) == touch)
            ):
                end += 1
            if touch:
                last = clusters[end - 1].id
                where = (
                    f"{cluster.id} {cluster.title}"
                    if end == column + 1
                    else (f"{cluster.id} to {last}")
                )
                gap = 1 if cell > 4 else 0
                boxes.append(Box(LEFT + column * cell, y, (end - column) * cell - gap, height - 2,
                                 f"t-{touch}", f"{label} in {where}: {touch}",
                                 cluster=cluster.id if end == column + 1 else ""))  # fmt: skip
            column = end
        y += height
    return Drawing(WIDTH, y + 6, tuple(boxes), tuple(texts))


def memory_map(report: Inspection) -> Drawing:
    """LDS or shared memory to scale: areas with their slots, and what each access touches."""
    total = max([report.memory_bytes, *(a.base + a.bytes for a in report.memory), 1])
    scale = (WIDTH - LEFT) / total
    boxes: list[Box] = []
    texts: list[tuple[float, float, str, str]] = [(0, 22, "", "areas and slots")]
    boxes.append(Box(LEFT, 6, WIDTH - LEFT, 24, "empty", f"{total} bytes"))
    for number, area in enumerate(report.memory):
        for slot in range(area.slots):
            x = LEFT + (area.base + slot * area.slot_bytes) * scale
            width = max(0.6, area.slot_bytes * scale - 1)
            what = f"{area.name} slot {slot}" if area.slots > 1 else area.name
            tip = (
                f"{what}: {area.base + slot * area.slot_bytes:#x}, {area.slot_bytes} bytes. "
                f"{area.layout} {area.note}".strip()
            )
            text = what if width > 6.2 * len(what) else ""
            boxes.append(Box(x, 6, width, 24, f"area-{number % 6}", tip, text=text))
    y = 38.0
    for use in report.lds:
        if use.lowest is None or use.highest is None:
            continue
        texts.append((0, y + 10, "small", f"{use.mnemonic} {use.address}"))
        tip = f"{use.mnemonic} {use.address}, {use.count} times: {use.lowest:#x}..{use.highest:#x}"
        boxes.append(Box(LEFT + use.lowest * scale, y, (use.highest - use.lowest + 1) * scale, 11,
                         "p-dma" if use.address == "m0" else "p-lds", tip))  # fmt: skip
        y += 15
    texts.append((LEFT, y + 12, "small", "0"))
    texts.append((WIDTH - 60, y + 12, "small", f"{total:#x}"))
    return Drawing(WIDTH, y + 18, tuple(boxes), tuple(texts))


def bank_grid(banks: Sequence[Sequence[int]]) -> Drawing | None:
    """One row a phase, one column a bank: how many dwords the bank has to serve in it."""
    if not banks:
        return None
    boxes = [
        Box(52 + bank * _BANK_CELL, 4 + row * 14, _BANK_CELL - 1, 12, f"bank-{min(served, 4)}",
            f"phase {row}, bank {bank}: {served} dwords")
        for row, phase in enumerate(banks)
        for bank, served in enumerate(phase)
    ]  # fmt: skip
    texts = tuple((0.0, 14.0 + row * 14, "small", f"phase {row}") for row in range(len(banks)))
    width = 60 + max(len(phase) for phase in banks) * _BANK_CELL
    return Drawing(width, 8 + len(banks) * 14, tuple(boxes), texts)

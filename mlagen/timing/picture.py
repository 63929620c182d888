"""A schedule beside its timeline, as an SVG: for a page of documentation, light or dark.

On the left each cluster with what the schedule does in it; on the right one wave of each role and
the matrix unit it shares, over the cycles of a window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from mlagen.disk import MARK, write_file
from mlagen.pages import PALETTE, shades
from mlagen.pages.style import SHADES
from mlagen.timing.events import TimedEvent, events, source_of
from mlagen.timing.model import Place, ScheduleSource
from mlagen.timing.trace import PAGE_LIMIT, tracks_of
from mlagen.timing.unit import UnitTimes

_WIDTH, _LEFT, _LINE, _EDGE = 1120, 330, 15, 12  # of the picture, its table, a line of text, a gap
_STRIP, _TRACK, _GAP = 14, 26, 8  # heights: a wave's clusters, its instructions, what parts tracks
_CSS = """svg { background: var(--bg); }
text { font: 12px ui-monospace, "SF Mono", Menlo, Consolas, monospace; fill: var(--ink); }
.soft { fill: var(--soft); } .in { fill: #fff; } .line { fill: var(--line); }
"""


@dataclass(frozen=True, slots=True)
class _Span:
    """Cycles `start` to `end` in one colour: a kind of instruction, or a cluster by its name."""

    what: str
    start: float
    end: float


def write_picture(
    unit: UnitTimes, window: tuple[int, int], path: str | Path, title: str, place: Place | None
) -> int:
    """Write the picture of a window; how many instructions it shows. ConfigError for too many."""
    found = events(unit, window, PAGE_LIMIT)
    sources = {event.row: source_of(unit, event.row, place)[1] for event in found}
    shown = _tracks(found, sources)
    write_file(path, _picture(title, window, _operations(found, sources), shown).encode())
    return sum(len(held) for _, held in shown)


def _tracks(
    found: Sequence[TimedEvent], sources: dict[int, ScheduleSource]
) -> list[tuple[str, list[tuple[TimedEvent, str]]]]:
    """The first wave of each role with its events and their clusters, and its SIMD's matrix unit.
    Waves that begin the window in the same cluster are one role."""
    tracks: dict[str, list[tuple[TimedEvent, str]]] = {}
    for event in sorted(found, key=lambda event: event.start):
        tracks.setdefault(event.track, []).append((event, sources[event.row].cluster))
    waves: dict[str, str] = {}
    for name in tracks_of(list(found)):
        if not name.startswith("matrix"):
            waves.setdefault(next((c for _, c in tracks[name] if c), ""), name)
    units = [name for name in tracks if name.startswith("matrix")]
    return [(name, tracks[name]) for name in (*waves.values(), *sorted(units)[:1])]


def _operations(
    found: Iterable[TimedEvent], sources: dict[int, ScheduleSource]
) -> dict[str, list[str]]:
    """What the schedule does in each cluster, in the order of its text; the waits and barriers
    that are the cluster's own are left out."""
    told: dict[str, dict[str, None]] = {}
    for row in sorted({event.row for event in found}):
        source = sources[row]
        if source.cluster and source.operation not in ("", f"cluster {source.cluster}"):
            told.setdefault(source.cluster, {})[source.operation] = None
    return {cluster: list(names) for cluster, names in sorted(told.items())}


def _picture(
    title: str,
    window: tuple[int, int],
    operations: dict[str, list[str]],
    shown: list[tuple[str, list[tuple[TimedEvent, str]]]],
) -> str:
    order = list(operations)
    shade = {cluster: f"shade-{n % SHADES}" for n, cluster in enumerate(order)}
    table, low = _table(operations, shade)
    scale = (_WIDTH - _LEFT - _EDGE) / (window[1] - window[0])

    def bars(spans: Iterable[_Span], y: float, height: float, names: bool) -> list[str]:
        made = []
        for span in spans:
            x, width = _LEFT + (span.start - window[0]) * scale, (span.end - span.start) * scale
            colour = shade.get(span.what, span.what)
            made.append(_rect(x, y, max(width - names, 0.5), height, colour))
            if names and width > 8 * len(span.what) + 5:
                made.append(_text(x + 4, y + height - 3, span.what, "in"))
        return made

    parts, y = [], 2.0 * _LINE
    for name, held in shown:
        parts.append(_text(_LEFT, y + 10, name, "soft"))
        y += _LINE
        clusters = [_Span(c, e.start, e.start + e.cycles) for e, c in held if c]
        if not name.startswith("matrix"):
            parts += bars(_joined(clusters, fill=True), y, _STRIP - 1, True)
            y += _STRIP
        kinds = [_Span(e.unit, e.start, min(e.start + e.cycles, window[1])) for e, _ in held]
        parts += bars(_joined(kinds, fill=False, least=1 / scale), y, _TRACK, False)
        y += _TRACK + _GAP
    parts += _axis(window, scale, 2.0 * _LINE, y)
    low = max(low, y + 2 * _LINE)
    used = {span.unit for _, held in shown for span, _ in held}
    legend, height = _legend(used, low)
    body = "\n".join((_text(_EDGE, _LINE, title, ""), *table, *parts, *legend))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" '
        f'width="{_WIDTH}" role="img" aria-label="{escape(title)}">\n'
        f"<!-- {MARK} -->\n"
        f"<style>\n{shades()}{_CSS}</style>\n{body}\n</svg>\n"
    )


def _table(operations: dict[str, list[str]], shade: dict[str, str]) -> tuple[list[str], float]:
    made, y = [], 2.0 * _LINE
    for cluster, names in operations.items():
        made.append(_rect(_EDGE, y, 22, _LINE * len(names) + 2, shade[cluster]))
        made.append(_text(_EDGE + 7, y + 13, cluster, "in"))
        made += [_text(44, y + 13 + _LINE * n, name, "") for n, name in enumerate(names)]
        y += _LINE * len(names) + _GAP
    return made, y


def _joined(spans: Sequence[_Span], *, fill: bool, least: float = 0.0) -> list[_Span]:
    """Neighbours of one colour as one span. `fill`: with the gaps between; else only where the gap
    is below `least` cycles, which nobody would see."""
    made: list[_Span] = []
    for span in spans:
        last = made[-1] if made else None
        if last and last.what == span.what and (fill or span.start - last.end <= least):
            made[-1] = _Span(span.what, last.start, max(span.end, last.end))
        else:
            made.append(span)
    return made


def _axis(window: tuple[int, int], scale: float, top: float, low: float) -> list[str]:
    length = window[1] - window[0]
    step = next(n for k in range(12) for n in (10**k, 2 * 10**k, 5 * 10**k) if 8 * n >= length)
    made = []
    for cycle in range(0, length, step):
        x = _LEFT + cycle * scale
        made.append(_rect(x, top + _LINE, 1, low - top - _LINE, "line"))
        made.append(
            _text(x + 3, low + 12, f"{cycle} cycles" if cycle == step else str(cycle), "soft")
        )
    return made


def _legend(used: set[str], top: float) -> tuple[list[str], float]:
    """Every colour that occurs, with what it is, in two columns; and where it ends."""
    names = [name for name in PALETTE if name in used]
    made = []
    for number, name in enumerate(names):
        x, y = _EDGE + number % 2 * _WIDTH / 2, top + number // 2 * (_LINE + 2)
        made.append(_rect(x, y, 11, 11, name))
        made.append(_text(x + 18, y + 10, f"{name}: {PALETTE[name].meaning}", "soft"))
    rows = -(-len(names) // 2)
    return made, top + rows * (_LINE + 2) + _GAP


def _rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'style="fill:var(--{colour})"/>'
    )


def _text(x: float, y: float, text: str, kind: str) -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}>{escape(text)}</text>'

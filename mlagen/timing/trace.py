"""A trace for Perfetto or chrome://tracing, and a page with the timeline.

Trace format: Chrome's JSON trace events, complete events ("ph": "X"); a cycle stands for a
microsecond there.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any, Final

from mlagen.disk import MARK, write_file
from mlagen.pages import legend, style
from mlagen.timing.events import TimedEvent, events, source_of
from mlagen.timing.model import Place
from mlagen.timing.unit import UnitTimes

TRACE_LIMIT: Final = 1_000_000  # events; Perfetto's page takes about as many in JSON
PAGE_LIMIT: Final = 60_000


def write_trace(
    unit: UnitTimes, window: tuple[int, int], path: str | Path, place: Place | None
) -> int:
    """Write a trace; how many events it has. ConfigError for one too large for a browser."""
    found = events(unit, window, TRACE_LIMIT)
    texts: dict[int, str] = {}
    tracks = {track: number for number, track in enumerate(tracks_of(found))}
    rows: list[dict[str, Any]] = [
        {"ph": "M", "pid": 0, "tid": number, "name": "thread_name", "args": {"name": track}}
        for track, number in tracks.items()
    ]
    for event in found:
        if event.row not in texts:
            text, source = source_of(unit, event.row, place)
            texts[event.row] = f"{text}  [{source}]"
        text = texts[event.row]
        rows.append({
            "ph": "X", "pid": 0, "tid": tracks[event.track], "ts": event.start,
            "dur": event.cycles, "name": text.partition(" ")[0], "cat": event.unit,
            "args": {"instruction": text},
        })  # fmt: skip
    trace = {"otherData": {"made": MARK, "unit": "1 us is 1 cycle"}, "traceEvents": rows}
    write_file(path, json.dumps(trace).encode())
    return len(found)


def write_page(
    unit: UnitTimes, window: tuple[int, int], path: str | Path, title: str, place: Place | None
) -> int:
    """Write a page with the timeline, nothing loaded from elsewhere; how many events it has."""
    found = events(unit, window, PAGE_LIMIT)
    tracks = tracks_of(found)
    units = list(dict.fromkeys(event.unit for event in found))
    rows = sorted({event.row for event in found})
    number = {row: i for i, row in enumerate(rows)}
    told = [source_of(unit, row, place) for row in rows]
    clusters = list(dict.fromkeys(source.cluster for _, source in told if source.cluster))
    data = {
        "title": title,
        "window": window,
        "tracks": tracks,
        "units": units,
        "clusters": clusters,
        "texts": [text for text, _ in told],
        "places": [
            [clusters.index(s.cluster) if s.cluster else -1, s.where, s.operation] for _, s in told
        ],
        "events": [
            [tracks.index(e.track), units.index(e.unit), number[e.row], e.start, e.cycles]
            for e in found
        ],
    }
    page = resources.files("mlagen.timing").joinpath("timeline.html").read_text()
    page = page.replace("/*STYLE*/", style()).replace("<!--LEGEND-->", legend(units))
    # "</" would end the script that holds the data.
    page = page.replace("/*DATA*/null", json.dumps(data).replace("</", "<\\/"))
    write_file(path, page.encode())
    return len(found)


def tracks_of(found: list[TimedEvent]) -> list[str]:
    """Waves first, then matrix units."""
    return sorted({event.track for event in found}, key=lambda t: (not t.startswith("w"), t))

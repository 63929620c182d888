"""A comparison as the rows of tables for a terminal."""

from __future__ import annotations

from mlagen.inspect.compare import CodeComparison, ComparedValue
from mlagen.inspect.model import PIPES
from mlagen.inspect.tables import SHORT, CodeTable, without_empty_columns


def diff_facts(report: CodeComparison) -> list[tuple[str, str]]:
    """(name, value) lines at the head."""
    lines = [
        (letter, f"{side.name} for {side.target}, {side.path} ({side.origin})")
        for letter, side in (("A", report.a), ("B", report.b))
    ]
    if report.equal:
        lines.append(("equal", "everything that is told here"))
    if report.same_code:
        lines.append(("code", "the same instructions"))
    return lines


def diff_tables(report: CodeComparison, *, everything: bool = False) -> list[CodeTable]:
    """Tables of what differs, with a row for what is equal; with `everything` also each of that."""
    made = [
        _change_table(title, changes, everything) for title, changes in report.tables if changes
    ]
    clusters = cluster_diff(report, everything=everything)
    return [*made[:5], clusters, *made[5:]]


def _change_table(title: str, changes: tuple[ComparedValue, ...], everything: bool) -> CodeTable:
    rows = [
        (change.name, change.a, change.b, "equal" if change.equal else change.delta)
        for change in changes
        if everything or not change.equal
    ]
    same = sum(change.equal for change in changes)
    if same and not everything:
        what = "all" if same == len(changes) else "others"
        rows.append((f"{what} {same}", "", "", "equal"))
    return without_empty_columns(CodeTable(title, ("", "A", "B", "B - A"), tuple(rows)))


def cluster_diff(report: CodeComparison, *, everything: bool) -> CodeTable:
    """Pairs that differ in counts or waits; alike differences in a row are one."""
    looped = any(pair.looped for pair in report.pairs)
    considered = [p for p in report.pairs if everything or p.looped or not looped]
    shown = [pair for pair in considered if everything or not pair.equal]
    pipes = [
        p for p in PIPES if any(n == p and a != b for pair in shown for n, a, b in pair.counts)
    ]
    rows = []
    for pair in shown:
        counts = {pipe: (a, b) for pipe, a, b in pair.counts}
        rows.append(
            (
                pair.role,
                _side(pair.a, pair.times[0]),
                _side(pair.b, pair.times[1]),
                pair.name,
                *(_delta(*counts.get(pipe, (0, 0))) for pipe in pipes),
                pair.waits.a,
                pair.waits.b,
                "equal" if pair.equal else "",
            )
        )
    same = sum(pair.equal for pair in considered)
    if same and not everything:
        rows.append(("", "", "", f"{'all' if same == len(considered) else 'others'} {same}",
                     *("" for _ in pipes), "", "", "equal"))  # fmt: skip
    names = tuple(SHORT.get(pipe, pipe) for pipe in pipes)
    where = "clusters of the loops" if looped and not everything else "clusters"
    return without_empty_columns(
        CodeTable(where, (" ", "A", "B", "cluster", *names, "waits only in A", "only in B", ""),
                  tuple(rows))
    )  # fmt: skip


def _side(id: str, times: int) -> str:
    return f"{id} (x{times})" if times > 1 else id or "none"


def _delta(a: int, b: int) -> str:
    return f"{a} > {b}" if a != b else str(a) if a else ""

"""Two inspections side by side: what is equal, what differs, and by how much.

Clusters are paired in their order, by name where both have names and by their instructions
otherwise, so that an artifact can be laid beside a binary that others made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlagen.inspect.model import PIPES, CodeCluster, Inspection, LdsUse, Pipe

# Worth of a pair against leaving both alone: how alike the instructions are (0 to 1), more for the
# same name and the same section, less this much for being paired at all.
_SAME_NAME, _SAME_SECTION, _PAIRED = 0.6, 0.2, 0.5


@dataclass(frozen=True, slots=True)
class ComparedValue:
    """Something that has a value on both sides; "" where a side does not have it."""

    name: str
    a: str
    b: str

    @property
    def equal(self) -> bool:
        return self.a == self.b

    @property
    def delta(self) -> str:
        """`b` minus `a` where both are numbers."""
        try:
            difference = int(self.b) - int(self.a)
        except ValueError:
            return ""
        return f"{difference:+d}" if difference else ""


@dataclass(frozen=True, slots=True)
class Pair:
    """Cluster ids on both sides, "" for none. `role`: "" for all. `times`: how often each stands in
    its loop alike. `counts`: (pipe, a, b). `waits`: those that only one side has."""

    a: str
    b: str
    name: str
    role: str
    times: tuple[int, int]
    counts: tuple[tuple[Pipe, int, int], ...]
    waits: ComparedValue
    looped: bool

    @property
    def equal(self) -> bool:
        alike = all(a == b for _, a, b in self.counts)
        return bool(self.a and self.b) and alike and self.waits.equal


@dataclass(frozen=True)
class CodeComparison:
    """All differences; each table also holds what is equal."""

    a: Inspection
    b: Inspection
    facts: tuple[ComparedValue, ...]
    facts_note: str
    resources: tuple[ComparedValue, ...]
    roles: tuple[ComparedValue, ...]
    mix_looped: tuple[ComparedValue, ...]
    mix: tuple[ComparedValue, ...]
    pairs: tuple[Pair, ...]
    registers: tuple[ComparedValue, ...]
    memory: tuple[ComparedValue, ...]
    lds: tuple[ComparedValue, ...]
    same_code: bool

    @property
    def tables(self) -> tuple[tuple[str, tuple[ComparedValue, ...]], ...]:
        """(title, changes) of everything but the clusters."""
        return (
            ("identity", self.facts),
            ("resources", self.resources),
            ("roles", self.roles),
            ("instructions in loops", self.mix_looped),
            ("instructions in all of the code", self.mix),
            ("registers", self.registers),
            ("memory", self.memory),
            ("LDS accesses", self.lds),
        )

    @property
    def equal(self) -> bool:
        tables = all(change.equal for _, table in self.tables for change in table)
        return tables and all(pair.equal for pair in self.pairs)

    def to_json(self) -> dict[str, object]:
        """The report as plain values: of both sides only who they are."""

        def changes(table: Sequence[ComparedValue]) -> dict[str, object]:
            return {
                "equal": all(change.equal for change in table),
                "rows": [{"name": c.name, "a": c.a, "b": c.b, "equal": c.equal} for c in table],
            }

        return {
            "a": _side(self.a),
            "b": _side(self.b),
            "equal": self.equal,
            "same_code": self.same_code,
            "facts_note": self.facts_note,
            **{title.replace(" ", "_"): changes(table) for title, table in self.tables},
            "clusters": [
                {
                    "a": pair.a,
                    "b": pair.b,
                    "name": pair.name,
                    "role": pair.role,
                    "times": pair.times,
                    "in_loop": pair.looped,
                    "equal": pair.equal,
                    "counts": {pipe: [a, b] for pipe, a, b in pair.counts},
                    "waits_a": pair.waits.a,
                    "waits_b": pair.waits.b,
                }
                for pair in self.pairs
            ],
        }


def _side(report: Inspection) -> dict[str, str]:
    """Which kernel stands on one side."""
    return {name: getattr(report, name) for name in ("name", "path", "target", "origin")}


def compare(a: Inspection, b: Inspection) -> CodeComparison:
    """Lay two inspections side by side."""
    both = a.origin == b.origin == "artifact"
    lacking = [side.path for side in (a, b) if side.origin == "binary"]
    return CodeComparison(
        a,
        b,
        _changes((("target", a.target), *(a.facts if both else ())),
                 (("target", b.target), *(b.facts if both else ()))),
        "" if both else f"no manifest tells problem, knobs or tools of {' and '.join(lacking)}",
        _changes(_texts(a.resources), _texts(b.resources)),
        _changes(_roles(a), _roles(b)),
        _mix(a, b, looped=True),
        _mix(a, b, looped=False),
        tuple(_pairs(a, b)),
        _changes(*_registers(a, b)),
        _changes(_memory(a), _memory(b)),
        _changes(_lds(a.lds), _lds(b.lds)),
        a.code_sha256 == b.code_sha256,
    )  # fmt: skip


def _texts(values: Iterable[tuple[str, int]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in values)


def _changes(
    a: Iterable[tuple[str, str]], b: Iterable[tuple[str, str]]
) -> tuple[ComparedValue, ...]:
    """Rows by name, in the order of `a` and then of what only `b` has."""
    left, right = dict(a), dict(b)
    return tuple(
        ComparedValue(name, left.get(name, ""), right.get(name, "")) for name in {**left, **right}
    )


def _roles(report: Inspection) -> list[tuple[str, str]]:
    return [
        (
            f"role {number}",
            f"{role.unit}s {role.first}..{role.last}"
            + (f", lags by {role.stagger}" if role.stagger else "")
            + (f", {role.registers} registers" if role.registers else ""),
        )
        for number, role in enumerate(report.roles)
    ]


def _mix(a: Inspection, b: Inspection, *, looped: bool) -> tuple[ComparedValue, ...]:
    left = a.mix(a.looped if looped else None)
    right = b.mix(b.looped if looped else None)
    return tuple(
        ComparedValue(pipe, str(left[pipe]), str(right[pipe]))
        for pipe in PIPES
        if left[pipe] or right[pipe]
    )


def _registers(a: Inspection, b: Inspection) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """By name where both sides have names, otherwise how many of each file the code touches."""
    if all(side.blocks and side.blocks[0].declared for side in (a, b)):
        left, right = ([(block.name, block.registers) for block in side.blocks] for side in (a, b))
        return left, right
    counted = []
    for side in (a, b):
        touched: dict[str, set[int]] = {}
        for block in side.blocks:
            if block.touched:
                held = range(block.first, block.first + block.count)
                touched.setdefault(block.file, set()).update(held)
        counted.append([(f"{file} touched", str(len(touched.get(file, ()))))
                        for file in ("v", "a", "s")])  # fmt: skip
    return counted[0], counted[1]


def _memory(report: Inspection) -> list[tuple[str, str]]:
    taken = [("taken", str(report.memory_bytes))]
    return taken + [
        (
            area.name,
            f"{area.base:#07x}: {area.slots} x {area.slot_bytes}"
            + (f", {area.layout}" if area.layout else ""),
        )
        for area in report.memory
    ]


def _lds(uses: Sequence[LdsUse]) -> list[tuple[str, str]]:
    """Accesses of each kind, and the cycles of the worst of them."""
    counts: dict[str, int] = {}
    worst: dict[str, tuple[int, int]] = {}
    for use in uses:
        counts[use.mnemonic] = counts.get(use.mnemonic, 0) + use.count
        if use.cycles is not None and use.ideal is not None:
            found = (use.cycles, use.ideal)
            worst[use.mnemonic] = max(worst.get(use.mnemonic, found), found)
    return [
        (
            name,
            f"{count} times"
            + (f", at most {worst[name][0]} cycles of {worst[name][1]}" if name in worst else ""),
        )
        for name, count in sorted(counts.items())
    ]


# ---- clusters -----------------------------------------------------------------------------------


def _pairs(a: Inspection, b: Inspection) -> list[Pair]:
    """Pairs of the loops role by role, then of all other code."""
    found: list[Pair] = []
    for name, left, right in _by_role(a, b):
        found += [_pair(x, y, name) for x, y in _align(left, right)]
    rest = [[_Group(c, 1) for c in side.clusters if not _in_loop(side, c)] for side in (a, b)]
    return found + [_pair(x, y, "") for x, y in _align(*rest)]


@dataclass(frozen=True, slots=True)
class _Group:
    """A cluster and how often it stands in the loop alike: once a phase of an unrolled loop."""

    cluster: CodeCluster
    times: int


def _in_loop(report: Inspection, cluster: CodeCluster) -> bool:
    return bool(report.looped) and cluster in report.looped


def _by_role(a: Inspection, b: Inspection) -> list[tuple[str, list[_Group], list[_Group]]]:
    """The loops' clusters of each role on both sides; once, where all roles run the same code."""
    named = a.origin == b.origin == "artifact"

    def of(report: Inspection, number: int | None) -> list[_Group]:
        if number is not None and number >= len(report.roles):
            return []
        mine = None if number is None else report.roles[number].name
        held: dict[object, list[CodeCluster]] = {}
        for cluster in report.looped:
            if mine is None or mine in cluster.roles:
                texts = tuple(wait.text for wait in cluster.waits)
                key = (cluster.name, cluster.mix, texts) if named else cluster.id
                held.setdefault(key, []).append(cluster)
        return [_Group(group[0], len(group)) for group in held.values()]

    shared = all(len(c.roles) == len(side.roles) for side in (a, b) for c in side.looped)
    if shared:
        return [("", of(a, None), of(b, None))]
    count = max(len(a.roles), len(b.roles))
    return [(f"role {number}", of(a, number), of(b, number)) for number in range(count)]


def _pair(a: _Group | None, b: _Group | None, role: str) -> Pair:
    held = a or b
    assert held is not None
    shown = held.cluster
    left, right = (dict(g.cluster.mix) if g else {} for g in (a, b))
    only_a, only_b = _wait_texts(a), _wait_texts(b)
    return Pair(
        a.cluster.id if a else "",
        b.cluster.id if b else "",
        shown.title,
        role,
        (a.times if a else 0, b.times if b else 0),
        tuple(
            (pipe, left.get(pipe, 0), right.get(pipe, 0))
            for pipe in PIPES
            if left.get(pipe) or right.get(pipe)
        ),
        ComparedValue("waits", _counted(only_a - only_b), _counted(only_b - only_a)),
        any(bool(g and g.cluster.loop) for g in (a, b)),
    )


def _wait_texts(group: _Group | None) -> Counter[str]:
    return Counter(wait.text for wait in group.cluster.waits) if group else Counter()


def _counted(texts: Counter[str]) -> str:
    return ", ".join(f"{count} x {text}" if count > 1 else text for text, count in texts.items())


def _worth(a: CodeCluster, b: CodeCluster) -> float:
    left, right = dict(a.mix), dict(b.mix)
    apart = sum(abs(left.get(pipe, 0) - right.get(pipe, 0)) for pipe in PIPES)
    alike = 1 - apart / max(1, a.instructions + b.instructions)
    named = a.name not in (a.id, "control") and a.name == b.name
    return alike + _SAME_NAME * named + _SAME_SECTION * (a.section == b.section) - _PAIRED


def _align(a: Sequence[_Group], b: Sequence[_Group]) -> list[tuple[_Group | None, _Group | None]]:
    """Pairs in order with the greatest worth (Needleman and Wunsch); the others stay alone."""
    best = [[0.0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) - 1, -1, -1):
        for j in range(len(b) - 1, -1, -1):
            paired = best[i + 1][j + 1] + _worth(a[i].cluster, b[j].cluster)
            best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
    found: list[tuple[_Group | None, _Group | None]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        both = i < len(a) and j < len(b)
        if both and best[i][j] == best[i + 1][j + 1] + _worth(a[i].cluster, b[j].cluster):
            found.append((a[i], b[j]))
            i, j = i + 1, j + 1
        elif i < len(a) and best[i][j] == best[i + 1][j]:
            found.append((a[i], None))
            i += 1
        else:
            found.append((None, b[j]))
            j += 1
    return found

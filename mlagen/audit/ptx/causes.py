"""One finding for each cause: what repeats over an unrolled loop, or over pairs of lines that one
missing synchronisation leaves unordered, is told once, with all its lines. So is a guess, with all
that rests on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mlagen.audit.ptx.report import Finding
from mlagen.severity import ASSUMED, rank, resting

# Whatever lines they have, these findings lack the same thing: a fence between two kinds of
# accesses, a wait before the end.
_BY_OPCODE = ("proxy-fence", "bulk-unwaited", "copy-unwaited", "wgmma-unwaited")


def by_cause(findings: Iterable[Finding]) -> list[Finding]:
    """Findings in order of their lines, those of one cause as one: the first of them, with the
    places of all."""
    groups: dict[int, list[Finding]] = {}
    at: dict[tuple[object, ...], int] = {}  # what findings of a group have in common -> group
    for finding in sorted(findings, key=lambda f: (f.line, f.rule, f.other_line)):
        shared = [at[key] for key in _keys(finding) if key in at]
        home = min(shared, default=len(at) + 1)
        group = groups.setdefault(home, [])
        for other in sorted({*shared} - {home}):
            group += groups.pop(other)
            at.update({key: home for key, number in at.items() if number == other})
        group.append(finding)
        at.update(dict.fromkeys(_keys(finding), home))
    found = [_merged(group) for group in groups.values()]
    return sorted(found, key=lambda f: (rank(f.severity), f.line, f.rule))


def _keys(finding: Finding) -> list[tuple[object, ...]]:
    """What makes findings one: a guess, the wait to change, opcodes, or a line that both have."""
    if finding.guess:
        return [("guess", finding.guess)]
    if finding.change:
        return [("change", finding.severity, finding.change)]
    kind = (finding.rule, finding.severity)
    if finding.rule in _BY_OPCODE:
        return [(*kind, _opcode(finding.text), _opcode(finding.other_text))]
    pair = bool(finding.other_line)
    lines = (finding.line, finding.other_line) if pair else (finding.line,)
    return [(*kind, pair, line) for line in lines]


def _left(finding: Finding) -> int:
    """How many groups the wait that it needs may leave."""
    number = finding.needs.rpartition(" ")[2]
    return int(number) if number.isdigit() else 0


def _opcode(text: str) -> str:
    """The instruction up to its first dot, and its guard away."""
    words = [word for word in text.split() if not word.startswith(("@", "{"))]
    return words[0].split(".")[0] if words else ""


def _merged(group: list[Finding]) -> Finding:
    # Of a guess, what breaks a rule tells more than a place that does not.
    group.sort(key=lambda f: (f.rule == ASSUMED, f.line, f.other_line))
    places = tuple(dict.fromkeys((f.line, f.other_line) for f in group))
    first = group[0]
    if first.change and not first.guess:
        return replace(min(group, key=_left), places=places)
    if not first.guess:
        return replace(first, places=places)
    broken = {f.rule for f in group} - {ASSUMED}
    told = resting(first.guess, (f.rule for f in group))
    if broken:
        told = f"{told}, first: {first.message}"
    rule = first.rule if len(broken) < 2 else ASSUMED
    return replace(first, rule=rule, message=told, places=places)

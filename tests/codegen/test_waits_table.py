"""Derived waits equal the reference table, row by row, or docs/waits.md says what permits it."""

import re
from pathlib import Path

import pytest

from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of, templates_for
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.targets.gfx950.codegen.build import generate
from mlagen.targets.gfx950.codegen.expand import expand
from mlagen.targets.gfx950.codegen.uses import conflicts, slot_uses

PAGE = (Path(__file__).parents[2] / "docs" / "waits.md").read_text()

# Wait counts (vm, lgkm) before the barrier that closes each row's cluster, for a tile of two DMAs
# a wave. Source: the reference schedule's table (HipKittens GQA kernel).
REFERENCE = {
    "P1": (0, 0), "P2": (2, 0), "P3": (4, 0),
    "C0": (None, None), "C1": (4, 0), "C2": (None, None), "C3": (4, 0),
    "C4": (None, None), "C5": (4, 0), "C6": (None, None), "C7": (4, 0),
    "E1": (4, 0), "E3": (4, 0), "E5": (2, 0), "E7": (2, 0), "E9": (0, 0), "E11": (None, 0),
}  # fmt: skip


KNOBS = {"k_slots": 2, "v_slots": 2, "spare_slots": 0}  # the reference's


@pytest.fixture(scope="module")
def built():
    schedule = schedule_of(load("mha_prefill_v2"), MhaConfigV2(num_heads=8, num_kv_heads=2), KNOBS)
    return schedule, generate(schedule, templates_for("gfx950")).layout


def closing(layout, key):
    """(vm, lgkm) of the wait that stands before the closing barrier of a piece."""
    body = layout.by_key()[key].body
    tail = body[-2] if body and body[-1].pipe == "barrier" else body[-1]
    if tail.pipe != "wait":
        return None, None
    counts = dict(re.findall(r"(vmcnt|lgkmcnt)\((\d+)\)", tail.text))
    return tuple(int(counts[n]) if n in counts else None for n in ("vmcnt", "lgkmcnt"))


def rows(layout):
    """Derived waits by row name, from an even and an odd number of tiles alike."""
    found = {
        "P1": closing(layout, "prologue B(-1)"),
        "P2": closing(layout, "prologue D(-1)"),
        "P3": closing(layout, "prologue D(0)"),
    }
    for tile, phase in enumerate((0, 1)):
        for index, cluster in enumerate("ABCD"):
            found[f"C{4 * tile + index}"] = closing(layout, f"loop{phase} {cluster}")
    found["E1"], found["E3"] = found["C1"], found["C3"]
    drains = {}
    for phase in (0, 1):
        drains[phase] = {
            "E5": closing(layout, f"drain{phase} B(-2)"),
            "E7": closing(layout, f"drain{phase} D(-2)"),
            "E9": closing(layout, f"drain{phase} B(-1)"),
            "E11": closing(layout, f"drain{phase} B(0)"),
        }
    assert drains[0] == drains[1], "odd and even N drain alike"
    return found | drains[0]


def text(counts):
    parts = [
        f"{n}({c})" for n, c in zip(("vmcnt", "lgkmcnt"), counts, strict=True) if c is not None
    ]
    return " ".join(parts) or "none"


def page_rows():
    table = {}
    first_table = PAGE.split("## Why")[0]
    for names, _, reference, derived in re.findall(
        r"^\| ([PCE][\d, PCE]*) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", first_table, re.M
    ):
        for name in names.split(", "):
            table[name] = (reference.strip(), derived.strip())
    return table


def test_loop_equals_the_reference(built):
    derived = rows(built[1])
    for row in ("C0", "C1", "C2", "C3", "C4", "C5", "C6", "C7", "E1", "E3", "E5", "P3"):
        assert derived[row] == REFERENCE[row], row


def test_every_row_is_on_the_page_as_derived(built):
    derived, page = rows(built[1]), page_rows()
    for row, reference in REFERENCE.items():
        assert page[row] == (text(reference), text(derived[row])), row


def test_every_difference_names_its_pair(built):
    """A differing row has a line with a pair of accesses, and that pair is one that the proof
    orders (or a register use, for reads that nothing overwrites)."""
    schedule, layout = built
    derived = rows(layout)
    differing = {row for row in REFERENCE if derived[row] != REFERENCE[row]}
    place = r"(\w+\([^)]*\) in \w[^|]*)"
    found = re.findall(rf"^\| ([PE]\d+) \| {place} \| {place} \|", PAGE, re.M)
    pairs = {row: (first, second) for row, first, second in found}
    assert set(pairs) == differing
    n = 9
    order = [("setup", 0), *((x.cluster.name, x.i) for x in expand(schedule, n))]
    uses = slot_uses(schedule, layout, layout.streams[0], n)
    ordered = {
        (f.kind, f.ring, f.tile, order[f.step], s.kind, s.ring, s.tile, order[s.step])
        for f, s in conflicts(uses)
    }
    for row, (first, second) in pairs.items():
        a, b = access(first, n), access(second, n)
        if b[0] in ("read", "copy"):
            assert (*a, *b) in ordered, row
        else:
            used_in = [x for x in expand(schedule, n) if (x.cluster.name, x.i) == b[-1]]
            assert any(o.name == b[0] for x in used_in for o in x.operations), row
            overwritten = [p for p in ordered if p[:4] == a and p[4] == "copy"]
            assert not overwritten, row


def access(words, n):
    """("read", "K", tile, (cluster, i)) of "read(K, N-1) in D, i = N-2"."""
    kind, arguments, cluster, i = re.match(r"(\w+)\(([^)]*)\) in (\w), i = (\S+)", words).groups()
    *ring, tile = [word.strip() for word in arguments.split(",")]

    def number(expression):
        return eval(expression, {"N": n})

    return (kind, *ring, number(tile), (cluster, number(i)))


def test_no_wait_is_missing_in_the_drain(built):
    """The DMA waits of a run: 2, 4, 4 ... 4, 2, 2, 0."""
    _, layout = built
    for n in (5, 6, 9):
        pieces = layout.by_key()
        counts = [
            int(match.group(1))
            for step in layout.paths(n)
            for x in pieces[step.piece].body
            if pieces[step.piece].cluster and x.pipe == "wait"
            for match in [re.search(r"vmcnt\((\d+)\)", x.text)]
            if match
        ]
        assert counts[0] == 2 and counts[-3:] == [2, 2, 0]
        assert set(counts[1:-3]) == {4}


def test_four_rows_are_the_eight_clusters_of_the_reference(built):
    """The page's table, read off the printed loop: slots of LDS and registers of scores."""
    schedule, layout = built
    said = {}
    for line in PAGE.split("\n"):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if re.fullmatch(r"C[0-7]", cells[0]) and len(cells) == 7:
            said[cells[1], cells[2]] = cells[3:]
    assert len(said) == 8
    scores = schedule.registers["S"]
    for piece in [p for p in layout.pieces() if p.section.startswith("loop")]:
        name, parity = piece.cluster.name, ("even", "odd")[piece.phase]
        cells = " ".join(said[name, parity])
        copied, loaded, touched = set(), set(), set()
        for x in piece.body:
            if x.access is not None:
                ring = schedule.lds.rings[x.access.target.ring]
                slot = (piece.phase + x.access.target.tile.offset) % ring.slots
                kind = copied if x.access.kind == "copy" else loaded
                kind.add(f"{ring.name} slot {slot}")
            for register in (*x.reads, *x.writes):
                if scores.first <= register < scores.first + 2 * scores.count:
                    touched.add(f"S{(register - scores.first) // scores.count}")
        assert (copied, loaded) == tuple(
            {cell} if cell else set() for cell in said[name, parity][2:]
        )
        assert touched == set(re.findall(r"S[01]", cells)), (name, parity)

"""Two kernels side by side."""

from __future__ import annotations

import pytest
from foreign_kernels import TWO_ROLES, for_threads

from mlagen.inspect import compare, inspect_path
from mlagen.inspect.compare import _align, _Group
from mlagen.inspect.diff_tables import diff_facts, diff_tables
from mlagen.inspect.model import CodeCluster


def changed(table):
    return {change.name: (change.a, change.b) for change in table if not change.equal}


@pytest.fixture(scope="module")
def other_knob(mha_report, mha_apart):
    return compare(mha_report, inspect_path(mha_apart))


def test_a_kernel_is_equal_to_itself(mha_report):
    report = compare(mha_report, mha_report)
    assert report.equal and report.same_code
    assert all((pair.equal and pair.a == pair.b) or pair.looped for pair in report.pairs)
    assert ("equal", "everything that is told here") in diff_facts(report)
    shown = [row for table in diff_tables(report) for row in table.rows]
    assert shown and all(row[-1] == "equal" for row in shown)


def test_a_knob_and_what_it_does(other_knob):
    """Without its priority cluster C has two s_setprio less; nothing else differs."""
    assert not other_knob.equal and not other_knob.same_code
    facts = changed(other_knob.facts)
    assert facts.pop("knob pv_priority") == ("1", "0")
    assert set(facts) == {"key"}
    looped = [pair for pair in other_knob.pairs if pair.looped]
    different = [pair for pair in looped if not pair.equal]
    assert [pair.name.rpartition(" ")[2] for pair in different] == ["C"]
    (cluster,) = different
    counts = {pipe: b - a for pipe, a, b in cluster.counts if a != b}
    assert counts == {"scalar": -2}
    assert cluster.waits.equal
    for table in (other_knob.registers, other_knob.memory, other_knob.lds, other_knob.roles):
        assert table and changed(table) == {}


def test_waits_that_differ(mha_report, hand_placed):
    report = compare(mha_report, inspect_path(hand_placed))
    waits = {pair.name.rpartition(" ")[2]: (pair.waits.a, pair.waits.b)
             for pair in report.pairs if pair.looped and not pair.waits.equal}  # fmt: skip
    assert waits["D"] == ("vmcnt(4) lgkmcnt(0)", "vmcnt(1) lgkmcnt(0)")
    assert "B" not in waits


def test_an_artifact_beside_its_own_binary(mha, mha_report, tmp_path):
    bare = tmp_path / "bare.co"
    bare.write_bytes((mha / "kernel.co").read_bytes())
    report = compare(mha_report, inspect_path(bare))
    assert report.same_code
    assert "no manifest tells problem" in report.facts_note
    assert changed(report.mix) == {} and changed(report.mix_looped) == {}
    assert changed(report.facts) == {}
    paired = [p for p in report.pairs if p.looped and p.a and p.b]
    # Eight clusters close in a barrier; each finds itself.
    assert sum(any(n == "barrier" for n, _, _ in pair.counts) for pair in paired) == 8
    matrix = {(a, b) for pair in paired for pipe, a, b in pair.counts if pipe == "matrix"}
    assert matrix == {(16, 16)}


def test_two_foreign_binaries(inspected):
    first = inspected(for_threads(256, TWO_ROLES), lds=8192)
    extra = "v_mfma_f32_32x32x8_f16 v[16:31], v[4:5], v[6:7], v[16:31]\n  s_barrier\n  ds_read"
    second = inspected(for_threads(256, TWO_ROLES.replace("s_barrier\n  ds_read", extra)), lds=8192)
    report = compare(first, second)
    assert changed(report.mix)["matrix"] == ("3", "5")
    assert not report.same_code
    roles = {pair.role for pair in report.pairs if pair.looped}
    assert roles == {"role 0", "role 1"}
    looped = [pair for pair in report.pairs if pair.looped]
    grown = [pair for pair in looped if any(n == "matrix" and b > a for n, a, b in pair.counts)]
    assert len(grown) == 2
    assert compare(first, first).equal


def test_the_same_name_outweighs_a_likelier_mix():
    def group(name, **mix):
        return _Group(
            CodeCluster("x", name, "loop", (), "L1", "", "", tuple(mix.items()), (), ()), 1
        )

    first = group("A", matrix=10)
    likelier, named = group("B", matrix=8, lds=2), group("A", matrix=4, lds=6)
    assert _align([first], [likelier, named]) == [(None, likelier), (first, named)]
    assert _align([first], [likelier, group("C", matrix=4, lds=6)])[0] == (first, likelier)


def test_a_role_less_is_told(inspected):
    two = inspected(for_threads(256, TWO_ROLES), lds=8192)
    one = inspected(
        for_threads(256, TWO_ROLES.replace("s_cbranch_scc0 second", "s_nop 0")), lds=8192
    )
    assert changed(compare(two, one).roles) == {
        "role 0": ("waves 0..1", "waves 0..3"),
        "role 1": ("waves 2..3", ""),
    }

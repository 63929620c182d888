"""Which registers are alive in which cluster."""

from __future__ import annotations

from foreign_kernels import TWO_ROLES, for_threads

BODY = """
  v_mov_b32 v1, 1.0
  v_mov_b32 v2, 2.0
  v_mov_b32 v9, 2.0
  s_barrier
  v_add_f32 v3, v1, v1
  s_barrier
  v_mul_f32 v4, v2, v3
  v_accvgpr_write_b32 a3, v4
  s_barrier
  v_accvgpr_read_b32 v5, a3
  v_lshlrev_b32 v7, 2, v0
  ds_write_b32 v7, v5
  s_endpgm
"""


def test_write_read_through(inspected):
    report = inspected(BODY, lds=1024, vgprs=64, accum=16)
    blocks = {block.name: block for block in report.blocks}
    assert dict(blocks["v1"].touched) == {"c0": "write", "c1": "read"}
    assert dict(blocks["v2"].touched) == {"c0": "write", "c1": "through", "c2": "read"}
    assert dict(blocks["v3"].touched) == {"c1": "write", "c2": "read"}
    assert dict(blocks["v4"].touched) == {"c2": "both"}
    assert dict(blocks["a3"].touched) == {"c2": "write", "c3": "read"}
    # Never read: written and not alive afterwards.
    assert dict(blocks["v9"].touched) == {"c0": "write"}
    assert blocks["v7"].use == "LDS address"
    assert blocks["v5"].use == "stored to LDS"
    # The thread's number is alive from the entry on.
    assert dict(blocks["v0"].touched)["c1"] == "through"


def test_a_value_is_alive_on_the_way_that_needs_it(inspected):
    """Only the jump's target uses v1; the code in between does not need it."""
    report = inspected(
        "s_load_dword s8, s[0:1], 0x0\n v_mov_b32 v1, 1.0\n v_lshlrev_b32 v2, 2, v0\n s_barrier\n"
        " s_waitcnt lgkmcnt(0)\n s_cmp_eq_u32 s8, 7\n s_cbranch_scc1 far\n s_barrier\n"
        " s_endpgm\nfar:\n ds_write_b32 v2, v1\n s_endpgm",
        lds=1024,
    )
    names = {c.id: [line.text.partition(" ")[0] for line in c.lines] for c in report.clusters}
    alive = {id: touch for b in report.blocks if b.name == "v[1:2]" for id, touch in b.touched}
    alive = alive or {i: t for b in report.blocks if b.name == "v1" for i, t in b.touched}
    by_last = {names[id][-1 if names[id][0] != "ds_write_b32" else 0]: t for id, t in alive.items()}
    assert by_last["ds_write_b32"] == "read"
    assert [t for id, t in alive.items()] == ["write", "through", "read"]


def test_neighbours_that_live_alike_are_one_block(inspected):
    report = inspected(for_threads(256, TWO_ROLES), lds=8192)
    blocks = {block.name: block for block in report.blocks}
    assert blocks["v[16:31]"].use == "accumulator"
    assert blocks["v[4:7]"].use == "matrix operand, filled from LDS"
    assert not blocks["v[4:7]"].declared


def test_every_declared_block_is_told_by_name(mha_report, mha):
    from mlagen.artifact import read_artifact

    declared = read_artifact(mha).manifest.map.registers
    assert {"K", "V", "S0", "S1", "O", "WAVE"} <= {regs.name for regs in declared}
    assert [b.name for b in mha_report.blocks] == [regs.name for regs in declared]
    assert all(block.declared for block in mha_report.blocks)


def test_tiles_in_shared_registers_are_told_apart(mha_report):
    """K and V lie in the same registers; the schedule reads K in D and uses it in A, V in B and C
    (its lifetimes are checked by the generator, and told here from the code)."""
    blocks = {block.name: dict(block.touched) for block in mha_report.blocks}
    names = {c.id: c.name for c in mha_report.looped}

    def where(block, *touches):
        return {names[id] for id, touch in blocks[block].items() if id in names
                and touch in touches} - {"control"}  # fmt: skip

    assert where("K", "write") == {"D"}
    assert where("K", "read") == {"A"}
    assert where("V", "write") == {"B"}
    assert where("V", "read") == {"C"}
    assert not {id for id in blocks["K"] if id in names} & {
        id for id in blocks["V"] if id in names and names[id] != "control"
    }
    assert where("O", "both") == {"C"}
    assert where("O", "through") == {"A", "B", "D"}


def test_peaks_are_within_what_is_allocated(mha_report):
    amounts = dict(mha_report.resources)
    assert 200 < amounts["vector registers alive at most"] <= amounts["vector registers"]
    assert 0 < amounts["scalar registers alive at most"] <= amounts["scalar registers"]

"""An sm_90a artifact: roles with loops of their own, pipelines, waits, names of registers."""

from __future__ import annotations

import re

import pytest

from mlagen.artifact import RegisterMap, SourceLine, read_artifact
from mlagen.inspect import inspect_path
from mlagen.inspect.model import CodeCluster, CodeLine
from mlagen.inspect.pipes import ptx_pipe_of
from mlagen.inspect.ptx import _steps
from mlagen.inspect.ptx_blocks import ptx_blocks
from mlagen.ptx import Entry, read_ptx


@pytest.fixture(scope="module")
def report(hopper):
    return inspect_path(hopper)


def test_each_role_has_its_loop(report, hopper):
    roles = read_artifact(hopper).manifest.map.roles
    assert len(roles) >= 2
    assert [r.name for r in report.roles] == [r.name for r in roles]
    assert {loop.roles[0] for loop in report.loops} == {r.name for r in roles}
    for loop in report.loops:
        assert all(c.roles == loop.roles for c in report.looped if c.loop == loop.name)


def test_the_loops_steps_are_the_schedules(report):
    steps = {role.name: [c for c in report.looped if c.roles == (role.name,)]
             for role in report.roles}  # fmt: skip
    everything = [c for group in steps.values() for c in group]
    assert any(c.count("matrix") for c in everything)
    assert any(c.name.startswith("copy(") and c.count("dma") for c in everything)
    copying = {c.roles for c in everything if c.count("dma")}
    computing = {c.roles for c in everything if c.count("matrix")}
    assert copying and computing


def test_every_instruction_of_the_line_map_is_in_one_cluster(report, hopper):
    artifact = read_artifact(hopper)
    text = artifact.text.splitlines()
    places = [line.at for c in report.clusters for line in c.lines]
    assert len(places) == len(set(places))
    matrix = [n for n, line in enumerate(text, 1) if "wgmma.mma_async" in line]
    assert set(matrix) <= set(places)
    assert report.mix()["matrix"] == len(matrix)


def test_waits_are_those_of_the_text(report, hopper):
    text = read_artifact(hopper).text
    found = [w.text for c in report.clusters for w in c.waits]
    for opcode in ("mbarrier.try_wait", "wgmma.wait_group"):
        inside = len(re.findall(rf"^\s*(?:WAIT: )?{re.escape(opcode)}", text, re.MULTILINE))
        assert inside and sum(wait.startswith(opcode) for wait in found) == inside
    assert {w.source for c in report.looped for w in c.waits} >= {"derived"}


def test_handoffs_have_their_barriers_and_tiles(report, hopper):
    known = read_artifact(hopper).manifest.map
    assert known.handoffs and len(report.handoffs) == len(known.handoffs)
    for handoff, told in zip(known.handoffs, report.handoffs, strict=True):
        assert (told.name, told.depth, told.bytes) == (handoff.name, handoff.depth, handoff.bytes)
        if handoff.full >= 0:
            area = next(a for a in report.memory if a.name == f"{handoff.name} full")
            assert (area.base, area.slots, area.slot_bytes) == (handoff.full, handoff.depth, 8)
            assert f"{handoff.full:#x}" in told.barrier
    assert all(a.base + a.bytes <= report.memory_bytes for a in report.memory)


def test_registers_are_alive_where_the_text_uses_them(report):
    blocks = {b.name: dict(b.touched) for b in report.blocks}
    assert blocks
    for cluster in report.clusters:
        for line in cluster.lines:
            if line.pipe == "matrix":
                named = {n for n in re.findall(r"%([a-z_]+)\d+", line.text) if n in blocks}
                for name in named:
                    assert cluster.id in blocks[name]


HEAD = ".version 8.0\n.target sm_90a\n.entry k()\n{\n"


def entry_of(body: str) -> Entry:
    """A kernel of these statements; the first stands in line 5."""
    return read_ptx(f"{HEAD}{body}\n}}\n").entries[0]


TEXT = """\
.version 8.0
.target sm_90a
.entry k() {
    .reg .f32 %acc<2>;  // sum
    .reg .f32 %x<1>;
    .reg .b32 %n<1>;
    .reg .f32 %late<1>;
    mov.f32 %acc0, 0f00000000;
    mov.u32 %n0, 4;
LOOP:
    ld.shared.f32 %x0, [%p];
    fma.rn.f32 %acc0, %x0, %x0, %acc0;
    mov.f32 %late0, %x0;
    sub.u32 %n0, %n0, 1;
    setp.ne.u32 %done, %n0, 0;
    @%done bra LOOP;
    bar.sync 0;
    st.global.f32 [%q], %acc0;
    st.global.f32 [%q+4], %late0;
    {
    .reg .f32 %x0;
    mov.f32 %x0, %acc0;
    }
    ret;
}
"""


def test_liveness_by_names():
    lines = TEXT.splitlines()

    def cluster(id, first, last):
        rows = tuple(CodeLine(n, lines[n - 1].strip(), "vector")
                     for n in range(first, last + 1) if not lines[n - 1].endswith(":"))  # fmt: skip
        return CodeCluster(id, id, "", (), "", "", "", (), (), rows)

    clusters = [cluster("start", 8, 9), cluster("loop", 11, 16), cluster("wait", 17, 17),
                cluster("end", 18, 19), cluster("own", 20, 24)]  # fmt: skip
    maps = [RegisterMap(name, ".f32", 1) for name in ("acc", "x", "n", "late")]
    entry = read_ptx(TEXT).entries[0]
    blocks = {b.name: dict(b.touched) for b in ptx_blocks(entry, clusters, maps)}
    assert blocks["acc"] == {"start": "write", "loop": "both", "wait": "through", "end": "read",
                             "own": "read"}  # fmt: skip
    # A register of the same name that braces declare is another one.
    assert blocks["x"] == {"loop": "both"}
    assert blocks["n"] == {"start": "write", "loop": "both"}
    # Not alive before anything has written it.
    assert blocks["late"] == {"loop": "write", "wait": "through", "end": "read"}


def test_an_accumulating_product_reads_its_result():
    product = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%o0, %o1}, %a, %b, p, 1;"
    entry = entry_of(product)
    rows = (CodeLine(5, product, "matrix"),)
    cluster = CodeCluster("c0", "c0", "", (), "", "", "", (), (), rows)
    (block,) = ptx_blocks(entry, [cluster], [RegisterMap("o", ".f32", 2)])
    assert dict(block.touched) == {"c0": "both"}


def test_a_wait_belongs_to_the_step_behind_it_in_its_section():
    text = HEAD + "\n".join([
        "mul.f32 %a, %b, %c;",
        "WAIT: mbarrier.try_wait.b64 %r, [%s], 0;",
        "add.f32 %a, %a, %c;",
        "wgmma.wait_group.sync.aligned 0;",
        "sub.f32 %a, %a, %c;",
        "}",
    ])  # fmt: skip
    source = [
        SourceLine(5, "loop", "", "math", "own/first.ptx.j2", 1, 5, "first(i)"),
        SourceLine(6, "loop", "", "math", "pipeline/wait.ptx.j2", 6, 6, "wait_full(i)"),
        SourceLine(7, "loop", "", "math", "own/second.ptx.j2", 1, 6, "second(i)"),
        SourceLine(8, "loop", "", "math", "", 0, 6, "second(i)"),
        SourceLine(9, "drain", "", "math", "own/second.ptx.j2", 1, 6, "second(i)"),
    ]
    module = read_ptx(text)
    steps = [(s.section, s.name, [instruction.opcode for _, instruction in s.rows])
             for s in _steps(source, module, module.entries[0])]  # fmt: skip
    assert steps == [
        ("loop", "first(i)", ["mul.f32"]),
        ("loop", "second(i)", ["mbarrier.try_wait.b64", "add.f32"]),
        ("loop", "waits", ["wgmma.wait_group.sync.aligned"]),
        ("drain", "second(i)", ["sub.f32"]),
    ]


@pytest.mark.parametrize(
    ("text", "pipe"),
    [
        ("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {%d0}, %a, %b, p, 1, 1", "matrix"),
        ("wgmma.wait_group.sync.aligned 0", "wait"),
        ("mbarrier.try_wait.parity.shared::cta.b64 %ready, [%at], 0", "wait"),
        ("@%p mbarrier.arrive.shared::cta.b64 _, [%at]", "barrier"),
        ("cp.async.bulk.tensor.2d.shared::cluster.global [%d], [%m, {%x, %y}], [%b]", "dma"),
        ("ld.shared.b32 %r, [%a]", "lds"),
        ("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%a], {%r}", "lds"),
        ("st.global.b32 [%a], %r", "vmem"),
        ("ld.param.u64 %r, [o]", "smem"),
        ("ex2.approx.ftz.f32 %r, %r", "transcendental"),
        ("WAIT: @!%ready bra WAIT", "branch"),
        ("fma.rn.f32 %r, %r, %r, %r", "vector"),
        ("setmaxnreg.inc.sync.aligned.u32 232", "scalar"),
    ],
)
def test_pipes_of_ptx(text, pipe):
    (instruction,) = entry_of(f"{text};").instructions
    assert ptx_pipe_of(instruction.opcode) == pipe

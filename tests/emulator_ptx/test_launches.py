"""`emulate` of PTX: what a launch may be, where memory lies, what a run tells."""

import numpy as np
import pytest
from running import kernel

from mlagen.emulator import Argument, Buffer, Launch, PtxFinding, Settings, TensorMap, emulate
from mlagen.errors import ConfigError, UnsupportedError

ONE = (1, 1, 1)
STORE = kernel("ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; st.global.u32 [%rd1], %r1; ret;",
               "p, .param .u32 n")  # fmt: skip


def launch(*arguments, grid=ONE, block=(32, 1, 1), **more):
    return Launch(grid, block, [Argument(*a) for a in arguments], **more)


def test_arguments_arrive_and_outputs_are_written():
    out = np.zeros(4, np.uint32)
    result = emulate(STORE, launch((0, Buffer("out", out)), (8, np.uint32(7))))
    assert out[0] == 7 and not result.findings
    assert result.counts["ret"] == 1 and result.executions[3] == 1
    assert result.wave_instructions == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"grid": (3, 1, 1), "cluster": (2, 1, 1)}, "no whole number of clusters of 2"),
        ({"cluster": (32, 1, 1)}, "a cluster of 32 blocks; sm_90a has at most 16"),
        ({"block": (2048, 1, 1)}, "2048 threads"),
        ({"block": (1, 1, 128)}, "128 threads in z"),
        ({"dynamic_shared": 232449}, "232449 bytes of shared memory"),
        ({"dynamic_shared": -1}, "dynamic_shared is -1"),
        ({"kernel": "zz"}, "has no entry zz"),
        ({"dynamic_lds_bytes": 8}, "of gfx950 code"),
    ],
)
def test_what_a_launch_cannot_have_is_refused(change, said):
    with pytest.raises(ConfigError, match=said):
        emulate(STORE, launch(**change))


@pytest.mark.parametrize(
    ("directives", "change", "said"),
    [
        (".reqntid 64", {}, "block is 32x1x1; k asks for 64x1x1 by .reqntid"),
        (".maxntid 16", {}, "a block of 32 threads; k has at most 16 by .maxntid"),
        (".reqntid 32 .reqnctapercluster 2", {"grid": (2, 1, 1), "cluster": ONE}, "asks for 2x1x1"),
        (".reqnctapercluster 4, 8", {}, "line 5: a cluster of 32 blocks; sm_90a has at most 16"),
        (".explicitcluster", {}, "its launch names the cluster"),
        (".explicitcluster .maxclusterrank 2", {"grid": (4, 1, 1), "cluster": (4, 1, 1)}, "rank 2"),
    ],
)
def test_what_the_entry_asks_for_is_held(directives, change, said):
    with pytest.raises(ConfigError, match=said):
        emulate(kernel("ret;", directives=directives), launch(**change))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([(0, np.uint32(1))], "p has 8 bytes"),
        ([(8, np.uint64(1))], "n has 4 bytes"),
        ([(4, np.uint32(1))], "p has 8 bytes"),
        ([(16, np.uint32(1))], "no parameter at byte 16"),
        ([(-4, np.uint32(1))], "no parameter at byte -4"),
        ([(8, np.uint32(1)), (8, np.uint32(1))], "set twice"),
    ],
)
def test_arguments_that_fit_no_parameter_are_refused(arguments, said):
    with pytest.raises(ConfigError, match=said):
        emulate(STORE, launch(*arguments))


def test_an_instruction_that_is_not_modelled_is_named_with_its_line():
    with pytest.raises(UnsupportedError, match=r"line 1[0-9]: .*tex"):
        emulate(kernel("tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [t, {%r1}]; ret;"), launch())


@pytest.mark.parametrize(
    ("space", "size", "most"), [("shared", 232449, 232448), ("const", 65537, 65536)]
)
def test_variables_beyond_the_target_are_named_with_their_line(space, size, most):
    text = kernel("ret;", head=f".{space} .b8 first[4];\n.{space} .b8 last[{{}}];")
    emulate(text.replace("{}", str(most - 4)), launch())
    with pytest.raises(UnsupportedError, match=f"line 5: .* up to last take {size} .* has {most}"):
        emulate(text.replace("{}", str(size - 4)), launch())


def test_registers_of_a_cluster_have_a_limit():
    """Texts may name any number of registers, and host memory holds them all for each warp."""
    body = "\n".join(f"mov.b128 %z{n}, %q1;" for n in range(4200))
    text = kernel(body + "\nret;", registers=".reg .b128 %z<4200>;")
    assert emulate(text, launch()).wave_instructions == 4201
    with pytest.raises(
        UnsupportedError, match=r"line 5: the registers that k names take 2[0-9]{6}"
    ):
        emulate(text, launch(grid=(16, 1, 1), cluster=(16, 1, 1), block=(1024, 1, 1)))


def test_ptx_of_a_later_machine_is_refused():
    for target in ("sm_103a", "sm_120a"):
        with pytest.raises(UnsupportedError, match=f"for {target}"):
            emulate(kernel("ret;", target=target), launch())
    for target in ("sm_100", "sm_100f", "sm_100a"):
        assert emulate(kernel("ret;", target=target), launch()).wave_instructions == 1


def test_instructions_of_the_other_machine_are_refused():
    with pytest.raises(UnsupportedError, match="sm_100a does not have it"):
        emulate(kernel("wgmma.fence.sync.aligned; ret;", target="sm_100a"), launch())
    with pytest.raises(UnsupportedError, match="sm_90a does not have it"):
        emulate(kernel("tcgen05.wait::ld.sync.aligned; ret;"), launch())


def test_a_parameter_that_nobody_set_is_a_finding_where_it_is_read():
    out = np.zeros(4, np.uint32)
    result = emulate(STORE, launch((0, Buffer("out", out))))
    (finding,) = result.findings
    assert isinstance(finding, PtxFinding) and finding.kind == "unset-argument"
    assert "parameter n" in finding.message and finding.asm.startswith("ld.param.u32")
    assert not emulate(STORE, launch((0, Buffer("out", out))), Settings(sanitize=False)).findings


def test_an_access_outside_all_buffers_names_the_nearest():
    out = np.zeros(4, np.uint32)
    result = emulate(STORE, launch((0, Buffer("out", out), 4096), (8, np.uint32(7))))
    (finding,) = result.findings
    assert finding.kind == "global-bounds" and "buffer out + 0x1000 (size 0x10)" in finding.message
    result = emulate(
        STORE, launch((0, Buffer("out", out), 4096), (8, np.uint32(7))), Settings(sanitize=False)
    )
    assert [f.kind for f in result.findings] == ["global-bounds"]  # it ends the run


def test_a_buffer_that_is_only_read_is_not_written():
    out = np.zeros(4, np.uint32)
    result = emulate(STORE, launch((0, Buffer("out", out, "read")), (8, np.uint32(7))))
    assert [f.kind for f in result.findings] == ["global-bounds"] and not out.any()


def test_variables_of_the_module_hold_what_the_text_says():
    head = """.global .align 8 .u32 g[4] = {1, 2, 3, 4};
    .const .align 8 .u64 c[2] = {generic(g)+8, 5};"""
    body = """ld.param.u64 %rd1, [p]; ld.const.u64 %rd2, [c]; ld.global.u32 %r1, [%rd2];
    ld.const.u32 %r2, [c+8]; ld.global.u32 %r3, [g+4]; st.global.u32 [g], 9;
    st.global.u32 [%rd1], %r1; st.global.u32 [%rd1+4], %r2; st.global.u32 [%rd1+8], %r3;
    ld.global.u32 %r4, [g]; st.global.u32 [%rd1+12], %r4; ret;"""
    for _ in range(2):  # each launch finds them anew
        out = np.zeros(4, np.uint32)
        result = emulate(kernel(body, "p", head=head), launch((0, Buffer("out", out))))
        assert out.tolist() == [3, 5, 2, 9] and not result.findings


def test_max_instructions_ends_a_loop():
    with pytest.raises(UnsupportedError, match="limit is 1000"):
        emulate(kernel("L: bra L;"), launch(), Settings(max_instructions=1000))


def test_a_trap_is_a_finding_at_its_line():
    (finding,) = emulate(kernel("trap;"), launch(), Settings(sanitize=False)).findings
    assert (finding.kind, finding.asm) == ("trap", "trap;") and finding.line > 5


def test_workgroups_run_their_clusters():
    body = """ld.param.u64 %rd1, [p]; mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], 1; ret;"""
    out = np.zeros(8, np.uint32)
    settings = Settings(workgroups=[(3, 0, 0), (2, 0, 0), (7, 0, 0)])
    seen = []
    asked = launch((0, Buffer("out", out)), grid=(8, 1, 1), cluster=(2, 1, 1))
    emulate(kernel(body, "p"), asked, settings, progress=lambda n, of: seen.append((n, of)))
    assert out.tolist() == [0, 0, 1, 1, 0, 0, 1, 1] and seen == [(2, 4), (4, 4)]
    with pytest.raises(ConfigError, match="outside the grid"):
        emulate(kernel(body, "p"), asked, Settings(workgroups=[(8, 0, 0)]))
    with pytest.raises(ConfigError, match="workgroups names none"):
        emulate(kernel(body, "p"), asked, Settings(workgroups=[]))


def test_threads_change_nothing():
    body = """ld.param.u64 %rd1, [p]; mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r2; ret;"""
    told = []
    for threads in (1, 2):
        out = np.zeros(64, np.uint32)
        asked = launch((0, Buffer("out", out)), grid=(64, 1, 1))
        told.append(emulate(kernel(body, "p"), asked, Settings(threads=threads)))
    assert told[0].findings == told[1].findings and told[0].counts == told[1].counts
    assert [(f.kind, f.count, f.workgroup) for f in told[0].findings] == [
        ("undefined-register", 64, (0, 0, 0))
    ]


def tensor_map(**change):
    array = np.zeros((64, 64), np.uint16)
    words = {
        "dtype": "bf16", "dims": (64, 64), "strides": (128,), "box": (64, 8), "swizzle": "128B",
    }  # fmt: skip
    return TensorMap(Buffer("q", array, "read"), **{**words, **change})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dims": (64, 65)}, "bytes 0..8319 of buffer q, which has 8192"),
        ({"buffer_offset": 16}, "bytes 16..8207 of buffer q"),
        ({"buffer_offset": 8, "dims": (64, 8)}, "no multiple of 16"),
        ({"strides": (120,)}, "the stride of dimension 1 is 120 bytes"),
        ({"strides": ()}, "0 strides for 2 dimensions; 1 belong to them"),
        ({"box": (64, 257)}, "box"),
        ({"box": (128, 8)}, "256 bytes; it is a multiple of 16, at most 128"),
        ({"swizzle": "7"}, "unknown swizzle"),
        ({"dtype": "u16", "fill": "nan"}, 'fill "nan" of u16'),
        ({"dims": ()}, "0 dimensions"),
        ({"element_strides": (1, 9)}, "element_strides"),
        ({"dtype": "tf32", "dims": (32, 64), "box": (32, 8)}, "not model"),
    ],
)
def test_tensor_maps_that_the_driver_refuses_are_refused(change, said):
    text = kernel("ret;", ".param .align 64 .b8 m[128]")
    with pytest.raises((ConfigError, UnsupportedError), match=said):
        emulate(text, launch((0, tensor_map(**change))))
    emulate(text, launch((0, tensor_map())))


def test_a_tensor_map_lies_at_a_multiple_of_64():
    text = kernel("ret;", ".param .align 64 .b8 m[256]")
    emulate(text, launch((64, tensor_map())))
    with pytest.raises(ConfigError, match="multiple of 64"):
        emulate(text, launch((32, tensor_map())))


def _copy(instruction, **change):
    """A kernel that copies a box of a map once, and what running it told last."""
    body = f"""mov.u32 %r0, %tid.x; setp.ne.u32 %p1, %r0, 0; @%p1 ret;
    mbarrier.init.shared.b64 [bar], 1;
{instruction};
    ret;"""
    head = ".shared .align 1024 .b8 sh[4096]; .shared .align 8 .b64 bar;"
    asked = launch((0, tensor_map(**change)))
    return emulate(kernel(body, ".param .align 64 .b8 m[128]", head=head), asked).findings[-1]


_LOAD = (
    "cp.async.bulk.tensor.{}.shared::cluster.global.mbarrier::complete_tx::bytes "
    "[sh], [m, {{{}}}], [bar]"
)


@pytest.mark.parametrize(
    ("instruction", "change", "said"),
    [
        (_LOAD.format("3d.tile", "0, 0, 0"), {}, "not as many dimensions as the instruction"),
        (_LOAD.format("1d", "0"), {}, "not as many dimensions as the instruction"),
        (_LOAD.format("2d", "0, 0"), {"box": (32, 8)}, "narrower than the swizzle"),
        (
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [m, {0, 0}], [sh]",
            {"dtype": "u8", "swizzle": "none"},
            "no elements of one byte",
        ),
    ],
)
def test_a_map_that_does_not_fit_the_copy_is_told_at_its_line(instruction, change, said):
    found = _copy(instruction, **change)
    assert found.kind == "map-misuse" and said in found.message and found.line == 18
    assert "the run was stopped there" in found.message

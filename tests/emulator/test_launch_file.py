"""Launch files: every key works, and every mistake is refused with what would fit."""

from dataclasses import fields

import ml_dtypes
import numpy as np
import pytest
from gfx950_assembler import assemble
from scale_kernel import LAUNCH, scale_kernel, write_case

from mlagen.binary import load_code_object
from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate
from mlagen.emulator.launching import Files, parse_launch, read_launch_file, run_launch, template
from mlagen.errors import BinaryError, ConfigError, MissingError, WriteError

X = np.arange(128, dtype=np.float32)


def run(folder, launch=LAUNCH, *, metadata=True, wait="s_waitcnt vmcnt(0)", offset=0, **options):
    code, file = write_case(folder, launch, metadata=metadata, wait=wait, offset=offset)
    files = Files(**{k: options.pop(k) for k in options.keys() & {f.name for f in fields(Files)}})
    return run_launch(code.read_bytes(), read_launch_file(file), Settings(**options), files)


# ---- what works -------------------------------------------------------------------------------


def test_a_launch_reads_runs_and_writes(tmp_path):
    done = run(tmp_path, write=True)
    assert not done.result.findings and not done.damage
    np.testing.assert_array_equal(done.arrays["y"].reshape(-1), 2.5 * X)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), (2.5 * X).reshape(2, 64))
    (output,) = done.outputs
    assert (output.name, output.dtype, output.shape) == ("y", "f32", (2, 64))
    assert (output.nans, output.infs, output.unwritten) == (0, 0, 0)
    assert (output.minimum, output.maximum) == (0.0, 317.5)
    assert done.workgroups == 2
    assert [p.name for p in tmp_path.iterdir() if "part" in p.name] == []


def test_without_write_no_file_appears(tmp_path):
    done = run(tmp_path)
    assert done.outputs[0].path == "" and not (tmp_path / "y.npy").exists()


def test_out_takes_the_place_of_the_folder(tmp_path):
    run(tmp_path, out=tmp_path / "deep" / "er", write=True)
    assert (tmp_path / "deep" / "er" / "y.npy").is_file() and not (tmp_path / "y.npy").exists()


def test_a_workgroup_of_the_file_or_the_call(tmp_path):
    chosen = "workgroups = [[1, 0, 0]]\n" + LAUNCH
    for done in (run(tmp_path, chosen), run(tmp_path, workgroups=[(1, 0, 0)])):
        assert done.workgroups == 1
        assert done.outputs[0].unwritten == 64
        assert done.outputs[0].nans == 64  # poison is NaN
        np.testing.assert_array_equal(done.arrays["y"][1], 2.5 * X[64:])


def test_objects_without_metadata_are_accepted(tmp_path):
    done = run(tmp_path, LAUNCH.replace('name = "factor"', "offset = 16"), metadata=False)
    np.testing.assert_array_equal(done.arrays["y"].reshape(-1), 2.5 * X)


def test_in_place_and_at_a_byte_offset(tmp_path):
    launch = LAUNCH.replace(
        'offset = 8\nbuffer = "y"', 'offset = 8\nbuffer = "x"\nbuffer_offset = 256'
    )
    start, end = launch.index("[buffers.y]"), launch.index("[[arguments]]")
    launch = launch[:start] + launch[end:]
    launch = launch.replace("[2, 1, 1]", "[1, 1, 1]").replace(
        'file = "x.npy"', 'file = "x.npy"\naccess = "readwrite"'
    )
    done = run(tmp_path, launch)
    np.testing.assert_array_equal(done.arrays["x"], np.concatenate([X[:64], 2.5 * X[:64]]))


def test_raw_bytes_with_a_type(tmp_path):
    (tmp_path / "x.bin").write_bytes(X.tobytes())
    launch = LAUNCH.replace('file = "x.npy"', 'file = "x.bin"\ndtype = "f32"\nshape = [2, 64]')
    done = run(tmp_path, launch)
    assert done.arrays["x"].shape == (2, 64)
    np.testing.assert_array_equal(done.arrays["y"].reshape(-1), 2.5 * X)


@pytest.mark.parametrize(
    ("name", "dtype", "stored"),
    [
        ("bf16", ml_dtypes.bfloat16, np.uint16),
        ("e4m3", ml_dtypes.float8_e4m3fn, np.uint8),
        ("e5m2", ml_dtypes.float8_e5m2, np.uint8),
    ],
)
def test_formats_that_numpy_lacks(tmp_path, name, dtype, stored):
    """bf16 and fp8 go in as integers of their size and come out so."""
    values = np.linspace(-8, 8, 256).astype(dtype)
    np.save(tmp_path / "z.npy", values.view(stored))
    extra = f'[buffers.z]\nfile = "z.npy"\ndtype = "{name}"\naddress = 0x40000000\n'
    extra += 'output = "z2.npy"\n'
    done = run(tmp_path, LAUNCH + extra, write=True)
    z = next(output for output in done.outputs if output.name == "z")
    assert (z.dtype, z.minimum, z.maximum) == (name, -8.0, 8.0)
    saved = np.load(tmp_path / "z2.npy")
    assert saved.dtype == stored
    np.testing.assert_array_equal(saved.view(dtype), values)


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16", "e4m3", "e5m2", "i32", "u8"])
def test_poison_is_nan_and_counted(tmp_path, dtype):
    extra = f'[buffers.z]\ndtype = "{dtype}"\nshape = [3, 5]\naddress = 0x40000000\n'
    done = run(tmp_path, LAUNCH + extra + 'output = "z.npy"\n')
    z = next(output for output in done.outputs if output.name == "z")
    assert z.unwritten == 15
    assert z.nans == (0 if dtype in ("i32", "u8") else 15)


def test_a_fill_and_a_size_in_bytes(tmp_path):
    launch = LAUNCH.replace('file = "x.npy"', 'bytes = 512\ndtype = "f32"\nfill = 3')
    done = run(tmp_path, launch)
    assert (done.arrays["y"] == 7.5).all()


def test_memory_behind_a_pointer_in_memory_has_an_address(tmp_path):
    extra = "[buffers.table]\nbytes = 64\naddress = 0x40000000\n"
    assert run(tmp_path, LAUNCH + extra).arrays["table"].nbytes == 64


def test_findings_are_returned(tmp_path):
    done = run(tmp_path, wait="s_nop 0")
    assert {finding.kind for finding in done.result.findings} == {"missing-wait"}
    clean = run(tmp_path, wait="s_nop 0", sanitize=False)
    assert not clean.result.findings


def test_a_guard_zone_catches_writes_and_lets_reads_pass(tmp_path):
    guarded = LAUNCH.replace('output = "y.npy"', 'output = "y.npy"\nguard = 64')
    assert not run(tmp_path, guarded).damage
    done = run(tmp_path, guarded, offset=16)
    (damage,) = done.damage
    assert (damage.buffer, damage.side, damage.distance, damage.count) == ("y", "after", 0, 16)
    assert not done.result.findings
    unguarded = run(tmp_path, LAUNCH, offset=16)
    assert [finding.kind for finding in unguarded.result.findings] == ["global-bounds"]


def test_a_guard_keeps_a_fixed_address(tmp_path):
    launch = LAUNCH.replace('output = "y.npy"', "guard = 64\naddress = 0x40000000")
    assert not run(tmp_path, launch).damage


def test_unset_arguments_may_be_allowed(tmp_path):
    launch = "allow_unset = true\n" + LAUNCH[: LAUNCH.rindex("[[arguments]]")]
    done = run(tmp_path, launch)
    assert done.unset == ("limits (offset 24, 6 bytes)",)
    np.testing.assert_array_equal(done.arrays["y"].reshape(-1), 2.5 * X)


def launched(tmp_path, launch=LAUNCH, **options):
    _, file = write_case(tmp_path, launch)
    return run_launch(scale_kernel(**options), read_launch_file(file))


def test_a_pointer_that_is_declared_as_four_bytes_and_padding(tmp_path):
    """The runtime copies the padding too: the kernel has the whole pointer."""
    address = "address = 0x1000000\n[[arguments]]"
    for launch in (
        LAUNCH,
        LAUNCH.replace("[[arguments]]", address, 1).replace(
            'offset = 8\nbuffer = "y"', 'offset = 8\ntype = "u64"\nvalue = 0x1000000'
        ),
    ):
        done = launched(tmp_path, launch, half=True)
        np.testing.assert_array_equal(done.arrays["y"].reshape(-1), 2.5 * X)
        assert not done.unset and not done.beyond
    arguments = parse_launch(template(load_code_object(scale_kernel(half=True)).kernel())).arguments
    assert [(a.offset, a.buffer) for a in arguments[:2]] == [(0, "x"), (8, "ptr_y")]


def test_eight_bytes_in_four_without_a_pointer_are_refused(tmp_path):
    wide = LAUNCH.replace('type = "f32"\nvalue = 2.5', 'type = "u64"\nvalue = 2')
    with pytest.raises(ConfigError, match="8 bytes at 16, but factor has 4 bytes"):
        launched(tmp_path, wide)
    behind = LAUNCH.replace(
        'name = "factor"\ntype = "f32"\nvalue = 2.5', 'offset = 28\nbuffer = "x"'
    )
    with pytest.raises(ConfigError, match="lie outside the kernel's argument segment"):
        launched(tmp_path, behind)


def test_arguments_behind_the_segment_are_not_passed_and_told(tmp_path):
    """Host code passes one structure to objects of several ages; the runtime cuts it off."""
    more = LAUNCH + '\n[[arguments]]\noffset = 32\ntype = "u32"\nvalue = 7\n'
    more += '[[arguments]]\noffset = 48\nbuffer = "z"\n[buffers.z]\nbytes = 64\n'
    done = launched(tmp_path, more)
    np.testing.assert_array_equal(done.arrays["y"].reshape(-1), 2.5 * X)
    assert len(done.beyond) == 2 and "offset 48" in done.beyond[1]


def test_the_template_is_a_launch_that_runs():
    code = load_code_object(scale_kernel())
    text = template(code.kernel())
    launch = parse_launch(text)
    assert launch.kernel == "k" and launch.block == (64, 1, 1)
    assert [(a.offset, a.name, a.type, a.buffer) for a in launch.arguments] == [
        (0, "x", None, "x"),
        (8, "y", None, "y"),
        (16, "factor", "u32", None),
        (24, "limits", "u32", None),
        (28, "limits", "u16", None),
    ]
    assert not run_launch(code, launch).result.findings
    bare = template(load_code_object(scale_kernel(metadata=False)).kernel())
    assert "declares no arguments" in bare and parse_launch(bare).arguments == []


# ---- what is refused --------------------------------------------------------------------------

FACTOR = 'name = "factor"\ntype = "f32"\nvalue = 2.5'


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("grid = [2, 1, 1]\n", "", ["grid is missing", "grid = [x, y, z]"]),
        ("grid =", "gird =", ["unknown key 'gird'", "did you mean 'grid'?"]),
        ("[2, 1, 1]", "[2, 1]", ["grid"]),
        ("[2, 1, 1]", "[0, 1, 1]", ["grid is (0, 1, 1)", "at least 1"]),
        ("[2, 1, 1]", '["2", 1, 1]', ["grid"]),
        ("[64, 1, 1]", "[2048, 1, 1]", ["2048 work-items", "1024"]),
        ("block =", "dynamic_lds = -1\nblock =", ["dynamic_lds is -1"]),
        ("block =", "dynamic_lds = 200000\nblock =", ["200000 bytes of LDS", "163840"]),
        ("block =", "workgroups = [[2, 0, 0]]\nblock =", ["(2, 0, 0)", "outside the grid"]),
        ("block =", 'kernel = "q"\nblock =', ["no kernel q", "it has: k"]),
        ("grid = [", "grid = [[", ["is no TOML"]),
        ('file = "x.npy"', 'fill = 1\nfile = "x.npy"', ["both a file and a fill"]),
        ('file = "x.npy"', 'bytes = 4\nfile = "x.npy"', ["bytes beside a file"]),
        ('file = "x.npy"', 'access = "rw"\nfile = "x.npy"', ["'rw'", "access"]),
        ('file = "x.npy"', 'pfad = "x.npy"', ["unknown key 'pfad'", "buffers.x", "known: file"]),
        ('file = "x.npy"', "guard = 16", ["buffers.x has no size", "or bytes"]),
        ('file = "x.npy"', "bytes = 4000000000000000", ["buffers.x asks for", "--max-memory"]),
        ('file = "x.npy"', 'dtype = "f64"\nshape = [9000000000, 9000000000]', ["buffers.x"]),
        ("offset = 28", "offset = 100000000000", ["outside the kernel's argument segment"]),
        ('file = "x.npy"', "bytes = -4", ["bytes -4 is negative"]),
        ('file = "x.npy"', 'bytes = 6\ndtype = "f32"', ["6 bytes", "4 bytes each"]),
        ('file = "x.npy"', "shape = [4]", ["a shape but no dtype"]),
        ('file = "x.npy"', 'shape = [-4]\ndtype = "f32"', ["negative size"]),
        ('file = "x.npy"', 'shape = [4]\ndtype = "fp32"', ["unknown dtype 'fp32'", "bf16", "e4m3"]),
        ('file = "x.npy"', 'bytes = 512\nfill = "zero"', ["'zero'", '"poison"']),
        ('file = "x.npy"', "bytes = 512\nfill = 256", ["256 is no u8", "0 to 255"]),
        ('file = "x.npy"', 'bytes = 512\ndtype = "bf16"\nfill = 1e39', ["overflows bf16"]),
        ('file = "x.npy"', 'file = "x.npy"\nguard = 8', ["guard 8", "multiple of 16"]),
        ('file = "x.npy"', 'file = "x.npy"\naddress = 3', ["address", "multiple of 4"]),
        ('file = "x.npy"', 'file = "x.npy"\ndtype = "bf16"', ["float32", "bf16", "f32"]),
        ('file = "x.npy"', 'file = "x.npy"\nshape = [7]', ["128 elements", "(7,)"]),
        ('file = "x.npy"', 'file = "x.bin"', ["x.bin needs a dtype", "f32"]),
        ('file = "x.npy"', 'file = "odd.bin"\ndtype = "f32"', ["odd.bin has 5 bytes"]),
        ('file = "x.npy"', 'file = "x.txt"', ["neither .npy nor .bin"]),
        ('file = "x.npy"', 'file = "bad.npy"', ["no array of numbers"]),
        ('file = "x.npy"', 'file = "void.npy"', ["holds |V2", "bf16"]),
        ('output = "y.npy"', 'output = "y.bin"', ["does not end in .npy"]),
        ('output = "y.npy"', 'output = "y.npy"\naccess = "read"', ['output but access "read"']),
        ('file = "x.npy"', 'file = "x.npy"\noutput = "y.npy"', ["the same output y.npy"]),
        ('buffer = "y"', 'buffer = "w"', ["no buffer 'w'", "buffers: x, y"]),
        ('buffer = "y"', 'buffer = "x"', ["buffer y is passed to no argument"]),
        ('buffer = "y"', 'buffer = "y"\nvalue = 4', ["both a buffer and a value"]),
        ('buffer = "y"', 'buffer = "y"\nbuffer_offset = 513', ["buffer_offset 513", "512 bytes"]),
        ('buffer = "y"', 'buffer = "y"\nbuffer_offset = -4', ["buffer_offset -4"]),
        ('offset = 8\nbuffer = "y"', 'offset = 4\nbuffer = "y"', ["overlaps offset 0"]),
        ('offset = 8\nbuffer = "y"', 'offset = 28\nbuffer = "y"', ["28..35", "32 bytes"]),
        ('offset = 8\nbuffer = "y"', 'offset = -8\nbuffer = "y"', ["offset -8 is negative"]),
        ('offset = 8\nbuffer = "y"', 'offset = 8\ntype = "u32"\nvalue = 1', ["y is a pointer"]),
        ('offset = 8\nbuffer = "y"', 'buffer = "y"', ["neither offset nor name"]),
        (FACTOR, 'name = "factor"\ntype = "f32"', ["has no value"]),
        (FACTOR, 'name = "factor"\nvalue = 1', ["has no type"]),
        (
            FACTOR,
            'name = "faktor"\ntype = "f32"\nvalue = 1',
            ["no argument called faktor", "limits"],
        ),
        (FACTOR, 'name = "factor"\ntype = "float"\nvalue = 1', ["unknown type 'float'", "f32"]),
        (FACTOR, 'name = "factor"\ntype = "f64"\nvalue = 1', ["factor has 4 bytes", "f32"]),
        (FACTOR, 'name = "factor"\ntype = "u8"\nvalue = 256', ["256 is no u8", "0 to 255"]),
        (FACTOR, 'name = "factor"\ntype = "i32"\nvalue = 1.5', ["1.5 is no i32"]),
        (FACTOR, 'name = "factor"\ntype = "f32"\nvalue = 1e39', ["overflows f32"]),
        (FACTOR, 'name = "factor"\ntype = "f32"\nvalue = "1"', ["value"]),
        (
            FACTOR,
            'name = "factor"\nbuffer_offset = 4\ntype = "f32"\nvalue = 1',
            ["without a buffer"],
        ),
        (
            'type = "i16"\nvalue = -1',
            'type = "i8"\nvalue = -1',
            ["does not set: limits", "allow_unset"],
        ),
        ("offset = 28", "offset = 30", ["30", "no argument"]),
    ],
)
def test_mistakes_are_refused_before_anything_runs(tmp_path, old, new, parts):
    (tmp_path / "x.bin").write_bytes(X.tobytes())
    (tmp_path / "odd.bin").write_bytes(b"12345")
    (tmp_path / "x.txt").write_text("1 2 3")
    (tmp_path / "bad.npy").write_bytes(b"no numpy file")
    np.save(tmp_path / "void.npy", np.zeros(128, ml_dtypes.bfloat16))
    assert old in LAUNCH
    with pytest.raises((ConfigError, BinaryError)) as caught:
        run(tmp_path, LAUNCH.replace(old, new, 1), write=True)
    for part in parts:
        assert part in str(caught.value)
    assert not (tmp_path / "y.npy").exists()


def test_missing_files_are_told_apart_from_wrong_ones(tmp_path):
    with pytest.raises(MissingError, match="absent\\.toml cannot be read"):
        read_launch_file(tmp_path / "absent.toml")
    with pytest.raises(MissingError, match="absent\\.npy cannot be read"):
        run(tmp_path, LAUNCH.replace('"x.npy"', '"absent.npy"'))


def test_an_output_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="cannot be written"):
        run(tmp_path, out=tmp_path / "file", write=True)


# ---- arguments that nobody set ----------------------------------------------------------------


def test_using_argument_bytes_that_nobody_set_is_a_finding(tmp_path):
    """`factor` left out: its dword is loaded, then used by the product."""
    start = LAUNCH.index('[[arguments]]\nname = "factor"')
    end = LAUNCH.index("[[arguments]]", start + 1)
    done = run(tmp_path, "allow_unset = true\n" + LAUNCH[:start] + LAUNCH[end:])
    (finding,) = done.result.findings
    assert finding.kind == "unset-argument" and finding.asm.startswith("v_mul_f32")
    assert finding.other_asm == "s_load_dword s8, s[0:1], 0x10"
    assert "reads s8, which holds bytes 0x10..0x13 of the argument segment (factor)" in str(finding)
    assert done.unset == ("factor (offset 16, 4 bytes)",)
    bare = run(tmp_path, LAUNCH[:start] + LAUNCH[end:], metadata=False)
    assert [f.kind for f in bare.result.findings] == ["unset-argument"]


def _one(body, arguments, **options):
    y = Buffer("y", np.zeros(64, np.uint32))
    result = emulate(
        assemble(body + "  s_endpgm\n", kernarg=32, **options),
        Launch(grid=(1, 1, 1), block=(64, 1, 1), arguments=[Argument(0, y), *arguments]),
    )
    return [(f.kind, f.asm.split()[0]) for f in result.findings]


def test_loading_more_bytes_than_are_set_is_none():
    """Compilers load 8 dwords where they need three: only using the others is a finding."""
    body = "  s_load_dwordx8 s[8:15], s[0:1], 0x0\n  s_waitcnt lgkmcnt(0)\n"
    given = [Argument(8, np.uint16(3))]
    assert _one(body + "  s_add_u32 s16, s8, s10\n", given) == []
    used = "  s_add_u32 s16, s8, s11\n"
    assert _one(body + used, given) == [("unset-argument", "s_add_u32")]
    overwritten = "  s_mov_b32 s11, 0\n" + used
    assert _one(body + overwritten, given) == []


def test_vector_loads_of_bytes_that_nobody_set():
    body = "  v_mov_b32 v1, {}\n  global_load_dword v2, v1, s[0:1]\n  s_waitcnt vmcnt(0)\n"
    given = [Argument(8, np.uint32(3))]
    assert _one(body.format(8), given) == []
    assert _one(body.format(12), given) == [("unset-argument", "global_load_dword")]


def test_preloaded_arguments_that_nobody_set():
    extra = ".amdhsa_user_sgpr_kernarg_preload_length 4"
    given = [Argument(8, np.uint32(3))]
    assert _one("  s_mov_b32 s16, s4\n", given, extra=extra) == []
    assert _one("  s_mov_b32 s16, s5\n", given, extra=extra) == [("unset-argument", "s_mov_b32")]


# ---- a stranger's launch file -----------------------------------------------------------------


def test_paths_stay_in_the_folder_unless_allowed(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    launch = LAUNCH.replace('"x.npy"', '"../x.npy"')
    np.save(tmp_path / "x.npy", 2 * X)
    with pytest.raises(ConfigError, match=r"'\.\./x\.npy' lies outside of .*inner"):
        run(inner, launch)
    done = run(inner, launch, allow_outside=True)
    np.testing.assert_array_equal(done.arrays["y"].reshape(-1), 5 * X)
    (inner / "link.npy").symlink_to(tmp_path / "x.npy")
    with pytest.raises(ConfigError, match="outside"):
        run(inner, LAUNCH.replace('"x.npy"', '"link.npy"'))
    with pytest.raises(ConfigError, match="outside"):
        run(inner, LAUNCH.replace('"y.npy"', '"../y.npy"'), out=inner / "out", write=True)
    assert not (tmp_path / "y.npy").exists() and not (inner / "y.npy").exists()
    within = LAUNCH.replace('"x.npy"', '"../inner/x.npy"')
    np.testing.assert_array_equal(run(inner, within).arrays["y"].reshape(-1), 2.5 * X)


def test_memory_is_limited_and_the_limit_can_be_raised(tmp_path):
    launch = LAUNCH.replace("shape = [2, 64]", "shape = [4, 64]")
    with pytest.raises(ConfigError, match="asks for 1024 bytes; 488 are left") as caught:
        run(tmp_path, launch, max_memory=1000)
    assert "max_memory" in str(caught.value)
    assert run(tmp_path, launch, max_memory=1536).arrays["y"].shape == (4, 64)


def test_a_large_grid_of_which_some_workgroups_run(tmp_path):
    launch = LAUNCH.replace("[2, 1, 1]", "[33554432, 1, 1]")
    with pytest.raises(ConfigError, match="33554432 workgroups; a run executes at most 1048576"):
        run(tmp_path, launch)
    assert run(tmp_path, launch, workgroups=[(1, 0, 0)]).outputs[0].unwritten == 64

"""Launch files for PTX, templates of them, and the command."""

import pytest
from running import kernel

from mlagen.emulator.launching import parse_launch, run_launch, template_ptx
from mlagen.errors import ConfigError
from mlagen.ptx import read_ptx

STRUCT = kernel(
    """ld.param.u64 %rd1, [s+8]; ld.param.v2.u32 {%r1, %r2}, [s+16]; ld.param.u16 %h1, [n];
    mov.b64 %rd3, t; st.global.u32 [%rd1], %r2; ret;""",
    ".param .align 8 .b8 s[24], .param .u16 n, .param .align 64 .b8 t[128]",
    head=".extern .shared .align 16 .b8 smem[];",
    directives=".reqntid 64",
)  # fmt: skip
LAUNCH = """
grid = [1, 1, 1]
block = [64, 1, 1]
dynamic_shared = 1024
[buffers]
x = { dtype = "bf16", shape = [64, 64], fill = 0 }
out = { dtype = "u32", shape = [2], output = "out.npy" }
[[tensor_maps]]
name = "m"
buffer = "x"
dtype = "bf16"
dims = [64, 64]
strides = [128]
box = [64, 8]
swizzle = "128B"
[[arguments]]
name = "s"
offset = 8
buffer = "out"
[[arguments]]
name = "s"
offset = 16
type = "u32"
value = 1
[[arguments]]
name = "s"
offset = 20
type = "u32"
value = 77
[[arguments]]
name = "n"
type = "u16"
value = 3
[[arguments]]
name = "t"
tensor_map = "m"
"""


def test_members_of_a_structure_and_a_tensor_map():
    run = run_launch(STRUCT, parse_launch(LAUNCH))
    assert run.arrays["out"][0] == 77 and not run.result.findings and run.kernel.name == "k"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "n"', 'name = "zz"', "no parameter called zz"),
        ('tensor_map = "m"', 'tensor_map = "zz"', "there is no tensor map 'zz'"),
        ('buffer = "x"', 'buffer = "zz"', "there is no buffer 'zz'"),
        ('swizzle = "128B"', "swizzl = 1", "did you mean 'swizzle'"),
        ("dims = [64, 64]", "dims = [64, 640]", "of buffer x, which has 8192"),
        ("dims = [64, 64]", "dims = 3", "tensor_maps"),
        ("box = [64, 8]", "box = [64, 8, 1]", "3 box for 2 dimensions"),
        ("offset = 20", "offset = 21", "s has 24 bytes"),
        ("offset = 20", "offset = 18", "set twice"),
        ("offset = 8", "offset = 4000", "no parameter at byte"),
        ('type = "u16"', 'type = "u32"', "n has 2 bytes"),
        ("value = 3", "value = 70000", "is no u16"),
        ("dynamic_shared = 1024", "dynamic_shared = 400000", "of shared memory"),
        ("dynamic_shared = 1024", "dynamic_lds = 4", "of gfx950 code"),
        ("block = [64, 1, 1]", "block = [32, 1, 1]", "asks for 64x1x1"),
        ("block = [64, 1, 1]", "block = [64, 1, 1]\ncluster = [2, 1, 1]", "no whole number of"),
        ('[[arguments]]\nname = "t"\ntensor_map = "m"', "", "passed to no argument"),
        ('[[arguments]]\nname = "n"\ntype = "u16"\nvalue = 3', "", "does not set: n (2 bytes"),
        ('tensor_map = "m"', 'tensor_map = "m"\nvalue = 3', "a tensor map and more"),
    ],
)
def test_what_does_not_fit_is_refused(old, new, said):
    assert old in LAUNCH
    with pytest.raises(ConfigError) as caught:
        run_launch(STRUCT, parse_launch(LAUNCH.replace(old, new)))
    assert said in f"{caught.value} {caught.value.hint}"


def test_a_template_is_a_launch():
    text = template_ptx(read_ptx(STRUCT).entries[0])
    launch = parse_launch(text)
    assert launch.block == (64, 1, 1) and launch.tensor_maps[0].name == "t"
    assert [(a.name, a.offset) for a in launch.arguments] == [
        ("s", 8), ("s", 16), ("s", 20), ("n", None), ("t", None),
    ]  # fmt: skip
    # The zero that it has for the pointer is no address.
    assert [f.kind for f in run_launch(STRUCT, launch).result.findings] == ["global-bounds"]

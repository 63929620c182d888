"""Tensor copies of the PTX emulator, against numpy."""

import itertools

import numpy as np
import pytest
from running import kernel, run

from mlagen.emulator import Buffer, TensorMap

MODES = ("latest", "earliest", "drawn")
HEAD = ".shared .align 8 .b64 bar;\n.shared .align 1024 .b8 buf[16384];"
MAP = ".param .align 64 .b8 {}[128]"


def tensor_map(array, box, **more):
    """A map over an array in C order."""
    name = {"V": "bf16"}.get(array.dtype.kind) or {
        "uint8": "u8", "uint16": "u16", "uint32": "u32", "int32": "i32", "float32": "f32",
        "float16": "f16", "float64": "f64", "uint64": "u64",
    }[array.dtype.name]  # fmt: skip
    return TensorMap(
        Buffer("t", array), name, array.shape[::-1], array.strides[-2::-1], box[::-1], **more
    )


def cut(array, at, box, steps=None, fill=0):
    """The box at some coordinates (both slowest first), with what lies outside filled."""
    steps = steps or (1,) * len(box)
    counts = [-(-b // s) for b, s in zip(box, steps, strict=True)]
    found = np.full(counts, fill, array.dtype)
    for index in itertools.product(*(range(n) for n in counts)):
        where = [a + i * s for a, i, s in zip(at, index, steps, strict=True)]
        if all(0 <= w < n for w, n in zip(where, array.shape, strict=True)):
            found[index] = array[tuple(where)]
    return found


def swizzled(box, span):
    """The bytes of a box as they lie in shared memory at a multiple of 1024."""
    data = np.ascontiguousarray(box).reshape(-1).view(np.uint8)
    place = np.arange(len(data))
    mask = {0: 0, 32: 1, 64: 3, 128: 7}[span]
    out = np.zeros_like(data)
    out[place ^ (((place >> 7) & mask) << 4)] = data
    return out


def load(dims, at, size, *, more="", form="tile"):
    """A kernel that loads a box and stores its bytes to p."""
    names = ", ".join(str(x) for x in at)
    form = "" if form == "tile" else f".{form}"
    return kernel(
        f"""
mbarrier.init.shared::cta.b64 [bar], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {size};
cp.async.bulk.tensor.{dims}d.shared::cluster.global{form}.mbarrier::complete_tx::bytes{more}
 [buf], [m, {{{names}}}], [bar];
W: mbarrier.try_wait.parity.shared::cta.b64 %p9, [bar], 0;
@!%p9 bra W;
ld.param.u64 %rd1, [p];
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [buf], {size};
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
ret;
""",
        f"{MAP.format('m')}, p",
        head=HEAD,
    )


def loaded(array, box, at, mode="latest", **more):
    """What a load leaves in shared memory."""
    made = tensor_map(array, box, **more)
    out = np.zeros(made.box_bytes, np.uint8)
    ran = run(
        load(array.ndim, at[::-1], made.box_bytes), {"p": out}, maps={"m": made},
        block=(1, 1, 1), mode=mode,
    )  # fmt: skip
    assert ran.ended and not ran.findings
    return out


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("shape", "box", "at"),
    [
        ((96,), (64,), (16,)),
        ((40, 64), (8, 16), (3, 32)),
        ((40, 64), (8, 16), (36, 56)),
        ((40, 64), (8, 16), (-3, -5)),
        ((40, 64), (8, 16), (-9, 0)),
        ((40, 64), (8, 16), (0, 64)),
        ((5, 6, 32), (2, 3, 16), (4, -1, 24)),
        ((3, 4, 5, 32), (2, 2, 2, 16), (2, 3, -1, 8)),
        ((2, 3, 4, 5, 32), (2, 2, 1, 3, 8), (1, 2, 3, 3, 30)),
    ],
)
def test_a_box_arrives(shape, box, at, mode):
    array = np.random.default_rng(3).integers(1, 60000, shape).astype(np.uint16)
    wanted = swizzled(cut(array, at, box), 0)
    assert np.array_equal(loaded(array, box, at, mode), wanted)


@pytest.mark.parametrize("span", [32, 64, 128])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_a_swizzle_exchanges_chunks(span, dtype):
    array = np.random.default_rng(3).integers(1, 250, (40, 256)).astype(dtype)
    box = (16, span // np.dtype(dtype).itemsize)
    wanted = swizzled(cut(array, (-2, 200), box), span)
    found = loaded(array, box, (-2, 200), swizzle=f"{span}B")
    assert np.array_equal(found, wanted)


def test_steps_leave_elements_out():
    array = np.random.default_rng(3).integers(1, 250, (40, 6, 32)).astype(np.uint16)
    box, at, steps = (16, 4, 16), (30, 3, 8), (3, 2, 1)
    wanted = swizzled(cut(array, at, box, steps), 0)
    assert np.array_equal(loaded(array, box, at, element_strides=steps[::-1]), wanted)


def test_what_lies_outside_may_be_nan():
    array = np.ones((8, 16), np.float32)
    found = loaded(array, (8, 16), (-2, 4), fill="nan").view(np.float32).reshape(8, 16)
    wanted = cut(array, (-2, 4), (8, 16), fill=np.nan)
    assert np.array_equal(np.isnan(found), np.isnan(wanted)) and np.isnan(found).sum() == 56
    assert set(found.view(np.uint32)[np.isnan(found)].tolist()) == {0x7FF77FF7}  # an H200's


def stores(dims, first, second, size, how=""):
    """A kernel that loads a box from m and stores or reduces it to n."""
    names = [", ".join(str(x) for x in at) for at in (first, second)]
    opcode = (
        f"cp.reduce.async.bulk.tensor.{dims}d.global.shared::cta.{how}.bulk_group"
        if how
        else f"cp.async.bulk.tensor.{dims}d.global.shared::cta.bulk_group"
    )
    return kernel(
        f"""
mbarrier.init.shared::cta.b64 [bar], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {size};
cp.async.bulk.tensor.{dims}d.shared::cta.global.mbarrier::complete_tx::bytes
 [buf], [m, {{{names[0]}}}], [bar];
W: mbarrier.try_wait.parity.shared::cta.b64 %p9, [bar], 0;
@!%p9 bra W;
{opcode} [n, {{{names[1]}}}], [buf];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
ret;
""",
        f"{MAP.format('m')}, {MAP.format('n')}",
        head=HEAD,
    )


def put(array, at, box, change):
    """Change what of a box lies inside of an array, in place."""
    for index in itertools.product(*(range(n) for n in box.shape)):
        where = tuple(a + i for a, i in zip(at, index, strict=True))
        if all(0 <= w < n for w, n in zip(where, array.shape, strict=True)):
            array[where] = change(array[where], box[index])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["", "add", "min", "xor"])
def test_a_box_is_stored_where_the_tensor_is(mode, how):
    rng = np.random.default_rng(3)
    source = rng.integers(1, 250, (40, 64)).astype(np.uint32)
    target = rng.integers(1, 250, (24, 48)).astype(np.uint32)
    box, first, second = (16, 32), (10, 20), (-4, 30)
    change = {
        "": lambda old, new: new,
        "add": lambda old, new: old + new,
        "min": min,
        "xor": lambda old, new: old ^ new,
    }[how]
    wanted = target.copy()
    put(wanted, second, cut(source, first, box), change)
    maps = {
        "m": tensor_map(source, box, swizzle="128B"),
        "n": tensor_map(target, box, swizzle="128B"),
    }
    text = stores(2, first[::-1], second[::-1], 2048, how)
    ran = run(text, maps=maps, block=(1, 1, 1), mode=mode)
    assert ran.ended and not ran.findings
    assert np.array_equal(target, wanted)


def test_four_rows_are_gathered():
    array = np.random.default_rng(3).integers(1, 250, (40, 64)).astype(np.uint16)
    made = tensor_map(array, (1, 64), swizzle="128B")
    rows = (7, 39, -1, 3)
    out = np.zeros(512, np.uint8)
    text = load(2, (16, *rows), 512, form="tile::gather4")
    ran = run(text, {"p": out}, maps={"m": made}, block=(1, 1, 1))
    assert ran.ended
    wanted = np.concatenate([cut(array, (row, 16), (1, 64)) for row in rows])
    assert np.array_equal(out, swizzled(wanted, 128))


def test_bytes_outside_of_the_tensor_count():
    array = np.ones((8, 16), np.uint32)
    made = tensor_map(array, (8, 16))
    out = np.zeros(512, np.uint8)
    text = load(2, (100, 100), 512)
    assert run(text, {"p": out}, maps={"m": made}, block=(1, 1, 1)).ended
    assert not out.any()


def test_a_map_that_a_kernel_makes():
    # A map of uint16[24][64] with a box of 8 x 32, from nothing, in shared memory.
    array = np.random.default_rng(3).integers(1, 60000, (24, 64)).astype(np.uint16)
    fields = [
        "global_address.shared::cta.b1024.b64 [made], %rd2;",
        "rank.shared::cta.b1024.b32 [made], 1;",
        "box_dim.shared::cta.b1024.b32 [made], 0, 32;",
        "box_dim.shared::cta.b1024.b32 [made], 1, 8;",
        "global_dim.shared::cta.b1024.b32 [made], 0, 64;",
        "global_dim.shared::cta.b1024.b32 [made], 1, 24;",
        "global_stride.shared::cta.b1024.b64 [made], 0, 128;",
        "element_stride.shared::cta.b1024.b32 [made], 0, 1;",
        "element_stride.shared::cta.b1024.b32 [made], 1, 1;",
        "elemtype.shared::cta.b1024.b32 [made], 1;",
        "interleave_layout.shared::cta.b1024.b32 [made], 0;",
        "swizzle_mode.shared::cta.b1024.b32 [made], 2;",
        "fill_mode.shared::cta.b1024.b32 [made], 0;",
    ]
    edits = "\n".join("tensormap.replace.tile." + field for field in fields)
    text = kernel(
        f"""
ld.param.u64 %rd1, [p];
ld.param.u64 %rd2, [q];
ld.param.u64 %rd3, [w];
mov.u32 %r1, %tid.x;
mov.u32 %r2, made;
mad.lo.u32 %r2, %r1, 4, %r2;
st.shared.u32 [%r2], 0;
bar.warp.sync -1;
setp.eq.u32 %p1, %r1, 0;
@!%p1 bra J;
{edits}
J: bar.warp.sync -1;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
 [%rd3], [made], 128;
fence.proxy.tensormap::generic.acquire.gpu [%rd3], 128;
@!%p1 ret;
mbarrier.init.shared::cta.b64 [bar], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;
cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes
 [buf], [%rd3, {{40, 3}}], [bar];
W: mbarrier.try_wait.parity.shared::cta.b64 %p9, [bar], 0;
@!%p9 bra W;
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [buf], 512;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
ret;
""",
        "p, q, w",
        head=HEAD + "\n.shared .align 128 .b8 made[128];",
    )
    out, place = np.zeros(512, np.uint8), np.zeros(128, np.uint8)
    ran = run(text, {"p": out, "q": array, "w": place})
    assert ran.ended and not ran.findings
    assert np.array_equal(out, swizzled(cut(array, (3, 40), (8, 32)), 64))


@pytest.mark.parametrize("mark", [b"", b"x" * 16, b"tros_map" + (9).to_bytes(8, "little")])
def test_what_is_no_map_stops_the_run(mark):
    from mlagen.emulator.ptx.host.map_records import passed

    raw = mark.ljust(128, b"\0")
    if mark.startswith(b"tros"):
        raw = passed(3)
    out = np.zeros(512, np.uint8)
    ran = run(load(2, (0, 0), 512), {"p": out, "m": raw}, block=(1, 1, 1))
    assert ran.fault == "FAULT_MAP"


def test_a_map_of_another_rank_stops_the_run():
    made = tensor_map(np.ones((8, 16), np.uint32), (8, 16))
    out = np.zeros(512, np.uint8)
    ran = run(load(3, (0, 0, 0), 512), {"p": out}, maps={"m": made}, block=(1, 1, 1))
    assert ran.fault == "FAULT_MAP"


def test_a_row_narrower_than_its_swizzle_is_not_modelled():
    made = tensor_map(np.ones((8, 64), np.uint16), (8, 32), swizzle="128B")
    out = np.zeros(512, np.uint8)
    ran = run(load(2, (0, 0), 512), {"p": out}, maps={"m": made}, block=(1, 1, 1))
    assert ran.fault == "FAULT_MAP"


def test_no_field_or_coordinate_leads_out_of_memory():
    """Maps with drawn words, drawn coordinates: a fault or a copy, and no crash."""
    rng = np.random.default_rng(11)
    array = np.zeros((16, 64), np.uint16)
    text = kernel(
        """
ld.param.u64 %rd2, [q];
ld.param.v4.u32 {%r1, %r2, %r3, %r4}, [at];
ld.param.u32 %r5, [to];
mbarrier.init.shared::cta.b64 [bar], 1;
cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes
 [%r5], [%rd2, {%r1, %r2}], [bar];
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd2, {%r3, %r4}], [%r5];
ret;
""",
        "p, q, .param .align 16 .b8 at[16], .param .u32 to",
        head=HEAD,
    )
    ends = set()
    for _ in range(300):
        words = np.zeros(16, np.uint64)
        words[0] = 0x70616D5F74696465
        words[1] = (1 << 38) - 1024 + int(rng.integers(-64, 64)) * 16
        if rng.random() < 0.2:
            words[1] = rng.integers(0, 1 << 63)
        raw = words.view(np.uint8)
        raw[16:21] = [1, rng.integers(0, 13), 0, rng.integers(0, 4), rng.integers(0, 2)]
        big = rng.random() < 0.3
        words.view(np.uint32)[6:11] = rng.integers(1, 1 << 32 if big else 80, 5)
        words[6:10] = rng.integers(0, 1 << 36 if big else 32, 4) * 16
        raw.view(np.uint16)[40:45] = rng.integers(0, 70, 5)
        raw[90:95] = rng.integers(0 if big else 1, 4, 5)
        if rng.random() < 0.3:
            raw[rng.integers(8, 128)] = rng.integers(0, 256)
        wide = 1 << 31 if rng.random() < 0.3 else 40
        at = rng.integers(-wide, wide, 4).astype(np.int32)
        to = int(rng.integers(0, 1 << 32)) if rng.random() < 0.2 else 2048
        ran = run(
            text,
            {"p": array, "q": words, "at": at.tobytes(), "to": np.uint32(to)},
            block=(1, 1, 1),
            mode=("latest", "earliest")[int(rng.integers(2))],
        )
        ends.add(ran.fault)
    assert {"", "FAULT_MAP", "FAULT_GLOBAL", "FAULT_SHARED"} <= ends

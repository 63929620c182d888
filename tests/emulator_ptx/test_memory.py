"""Loads and stores of the emulator's engine in every state space."""

from __future__ import annotations

import numpy as np
import pytest
from lane_rows import SHARED, copied, drawn
from running import At, kernel, run

from mlagen.errors import UnsupportedError

SIZES = {"8": np.uint8, "16": np.uint16, "32": np.uint32, "64": np.uint64}
REGISTERS = {"8": "h", "16": "h", "32": "r", "64": "rd"}


def vector(bits: str, items: int, backwards: bool = False) -> str:
    names = [f"%{REGISTERS[bits]}{10 + k}" for k in range(items)]
    names = names[::-1] if backwards else names
    return "{" + ", ".join(names) + "}" if items > 1 else names[0]


FORMS = [(b, n) for b in SIZES for n in (1, 2, 4, 8) if n < 8 and int(b) * n <= 128]
FORMS += [("32", 8), ("64", 4)]


@pytest.mark.parametrize("space", ["global", "shared", "local", "generic"])
@pytest.mark.parametrize(("bits", "items"), FORMS)
def test_vectors_of_every_size(space: str, bits: str, items: int) -> None:
    source = drawn(SIZES[bits], items, int(bits))
    result = np.zeros_like(source)
    v = f".v{items}" if items > 1 else ""
    forth, back = vector(bits, items), vector(bits, items, backwards=True)
    size = source.nbytes // 32
    through = {
        "global": "",
        "generic": "",
        "local": f"""st.local{v}.u{bits} [mine+{size}], {forth};
            ld.local{v}.u{bits} {forth}, [mine+{size}];""",
        "shared": f"""mov.u32 %r30, sh; mad.lo.u32 %r30, %r40, {size}, %r30;
            st.shared{v}.u{bits} [%r30+{size}], {forth};
            ld.shared{v}.b{bits} {forth}, [%r30+{size}];""",
    }[space]
    name = "" if space == "generic" else ".global"
    ran = copied(
        f"ld{name}{v}.u{bits} {forth}, [%rd1]; {through} st{name}{v}.u{bits} [%rd2], {back};",
        source,
        result,
    )
    assert ran.ended and ran.kinds() == []
    assert (result == source[:, ::-1]).all()


def test_sixteen_bytes_in_one_register() -> None:
    source = drawn(np.uint64, 2)
    result = np.zeros_like(source)
    ran = copied("ld.global.b128 %q1, [%rd1]; st.global.b128 [%rd2], %q1;", source, result)
    assert ran.ended and (result == source).all()


@pytest.mark.parametrize("kind", ["s8", "u8", "s16", "u16", "s32", "u32"])
@pytest.mark.parametrize("register", ["h", "r", "rd"])
def test_a_register_may_be_wider_than_what_is_loaded(kind: str, register: str) -> None:
    """PTX ISA 9.0, table 28: extended with the sign for .s, with zeros otherwise."""
    bits = int(kind[1:])
    wide = {"h": 16, "r": 32, "rd": 64}[register]
    if bits > wide:
        with pytest.raises(UnsupportedError, match="bits"):
            copied(
                f"ld.global.{kind} %{register}1, [%rd1];", drawn(np.uint8, 8), drawn(np.uint8, 8)
            )
        return
    source = drawn(np.dtype(f"{'i' if kind[0] == 's' else 'u'}{bits // 8}").type, 1, bits)
    result = np.zeros((32, 1), f"u{wide // 8}")
    ran = copied(
        f"ld.global.{kind} %{register}10, [%rd1]; st.global.b{wide} [%rd2], %{register}10;",
        source,
        result,
    )
    assert ran.ended
    assert (result == source.astype(np.int64).astype(result.dtype)).all()


@pytest.mark.parametrize("bits", ["8", "16", "32"])
def test_a_store_takes_the_low_bits_of_a_wider_register(bits: str) -> None:
    source, result = drawn(np.uint64, 1), np.zeros((32, 1), SIZES[bits])
    copied(f"ld.global.u64 %rd10, [%rd1]; st.global.u{bits} [%rd2], %rd10;", source, result)
    assert (result == source.astype(SIZES[bits])).all()


def test_lanes_that_a_guard_leaves_out_change_nothing() -> None:
    source, result = drawn(np.uint32, 1), np.full((32, 1), 7, np.uint32)
    ran = copied(
        """and.b32 %r2, %r40, 1; setp.ne.u32 %p1, %r2, 0;
        mov.u32 %r10, 5; @%p1 ld.global.u32 %r10, [%rd1]; st.global.u32 [%rd2], %r10;
        @!%p1 st.global.u32 [%rd2], 9;""",
        source,
        result,
    )
    assert ran.ended and not ran.findings
    odd = np.arange(32)[:, None] % 2 == 1
    assert (result == np.where(odd, source, 9)).all()


def test_lanes_far_apart_and_in_several_buffers() -> None:
    """Each lane loads from where its own pointer says: two buffers, in no order."""
    one, two = drawn(np.uint64, 1, 1), drawn(np.uint64, 1, 2)
    order = np.random.default_rng(3).permutation(32)
    base = np.where(np.arange(32) % 3 == 0, 0x5000_0000, 0x9_0000_0000) + 8 * order
    pointers, result = base.astype(np.uint64)[:, None], np.zeros((32, 1), np.uint64)
    ran = copied(
        "ld.global.u64 %rd3, [%rd1]; ld.global.u64 %rd4, [%rd3]; st.global.u64 [%rd2], %rd4;",
        pointers,
        result,
        buffers=[(0x5000_0000, one), (0x9_0000_0000, two)],
    )
    assert ran.ended and not ran.findings
    expected = np.where(np.arange(32) % 3 == 0, one[order, 0], two[order, 0])
    assert (result[:, 0] == expected).all()


def test_the_destination_may_be_the_address() -> None:
    source, result = drawn(np.uint64, 2), np.zeros((32, 2), np.uint64)
    copied(
        "ld.global.v2.u64 {%rd1, %rd3}, [%rd1]; st.global.v2.u64 [%rd2], {%rd1, %rd3};",
        source,
        result,
    )
    assert (result == source).all()


def test_lanes_of_one_address_store_in_ascending_order() -> None:
    source, result = drawn(np.uint32, 1), np.zeros((32, 1), np.uint32)
    copied(
        "ld.param.u64 %rd3, [o]; ld.global.u32 %r10, [%rd1]; st.global.u32 [%rd3], %r10;",
        source,
        result,
    )
    assert result[0, 0] == source[31, 0]


def test_parameters_at_offsets_and_by_address() -> None:
    result = np.zeros(4, np.uint32)
    text = kernel(
        """mov.b64 %rd1, s; ld.param.v2.u32 {%r1, %r2}, [s+8]; ld.param.u32 %r3, [%rd1+4];
        ld.param.u8 %h1, [s+3]; cvt.u32.u16 %r4, %h1; ld.param.u64 %rd2, [o];
        st.global.v4.u32 [%rd2], {%r1, %r2, %r3, %r4}; ret;""",
        ".param .align 8 .b8 s[16], o",
    )
    ran = run(
        text,
        {"s": [At(0, np.uint32(0xAB000001)), At(4, np.uint32(2)), At(8, np.uint64(4 << 32 | 3))],
         "o": result},
    )  # fmt: skip
    assert ran.ended and result.tolist() == [3, 4, 2, 0xAB]


def test_generic_addresses_of_each_space() -> None:
    result = np.zeros((32, 4), np.uint32)
    ran = copied(
        """st.local.u32 [mine+4], %r40; st.shared.u32 [sh], 77; bar.warp.sync 0xffffffff;
        mov.u64 %rd3, mine; cvta.local.u64 %rd3, %rd3; ld.u32 %r1, [%rd3+4];
        mov.u64 %rd4, sh; cvta.shared.u64 %rd4, %rd4; ld.u32 %r2, [%rd4];
        ld.global.u32 %r3, [%rd1]; ld.u32 %r4, [%rd1];
        st.v4.u32 [%rd2], {%r1, %r2, %r3, %r4};""",
        drawn(np.uint32, 1, 5),
        result,
    )
    assert ran.ended and not ran.findings
    source = drawn(np.uint32, 1, 5)[:, 0]
    assert (result == np.stack([np.arange(32), np.full(32, 77), source, source], 1)).all()


def test_one_generic_load_reaches_several_spaces() -> None:
    """Lanes 0-15 give an address in shared memory, the others one in global memory."""
    source, result = drawn(np.uint32, 1), np.zeros((32, 1), np.uint32)
    ran = copied(
        """st.shared.u32 [sh+8], 77; bar.warp.sync 0xffffffff;
        mov.u64 %rd4, sh; cvta.shared.u64 %rd4, %rd4;
        add.u64 %rd4, %rd4, 8; setp.lt.u32 %p1, %r40, 16; selp.b64 %rd5, %rd4, %rd1, %p1;
        ld.u32 %r1, [%rd5]; st.u32 [%rd2], %r1;""",
        source,
        result,
    )
    assert ran.ended and not ran.findings
    assert (result[:, 0] == np.where(np.arange(32) < 16, 77, source[:, 0])).all()


def test_shared_memory_of_another_cta() -> None:
    """CTA 0 writes into CTA 1's memory, which answers in CTA 0's."""
    result = np.zeros(2, np.uint32)
    text = kernel(
        """mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, sh; ld.param.u64 %rd1, [o];
        xor.b32 %r3, %r2, 0x1000000; mov.u32 %r5, 5; setp.eq.u32 %p1, %r1, 1; @%p1 bra WAIT;
        st.release.cluster.shared::cluster.u32 [%r3], %r5;
        WAIT: ld.acquire.cluster.shared::cluster.u32 %r4, [%r2];
        @!%p1 setp.ne.u32 %p2, %r4, 6; @%p1 setp.ne.u32 %p2, %r4, 5;
        @%p2 bra WAIT;
        mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r4;
        @%p1 st.release.cluster.shared::cluster.u32 [%r3], 6; ret;""",
        "o",
        head=SHARED,
    )
    for mode in ("latest", "earliest", "drawn"):
        result[:] = 0
        ran = run(text, {"o": result}, grid=(2, 1, 1), cluster=(2, 1, 1), mode=mode)
        assert ran.ended, mode
        assert result.tolist() == [6, 5]
        assert not {"SHARED_BOUNDS", "SHARED_GONE"} & set(ran.kinds())


REFUSED = {
    "ld.global.u32 %p1, [%rd1];": "bits",
    "ld.global.u32 %h1, [%rd1];": "bits",
    "ld.global.v3.u32 {%r1, %r2, %r3}, [%rd1];": "v3",
    "ld.global.v2.u32 {%r1, %r2, %r3}, [%rd1];": "3 items in a vector of 2",
    "ld.global.v8.u64 {%rd1,%rd2,%rd3,%rd4,%rd5,%rd6,%rd7,%rd8}, [%rd1];": "32 bytes",
    "ld.global.f16 %h1, [%rd1];": r"\.f16",
    "ld.global.global.u32 %r1, [%rd1];": "twice",
    "ld.global.shared.u32 %r1, [%rd1];": "twice",
    "ld.release.global.u32 %r1, [%rd1];": "release",
    "ld.shared.nc.u32 %r1, [%r1];": "global memory",
    "ld.global.sparkling.u32 %r1, [%rd1];": "sparkling",
    "ld.global.u32 %r1, [sh];": "lies in .shared",
    "ld.global %r1, [%rd1];": "no type",
    "ld.global.u32 %r1, [%h1];": "32 or 64 bits",
    "ld.global.u32 %r1, [%rd1], %rd2;": "operands",
    "ld.global.L2::cache_hint.u32 %r1, [%rd1];": "operands",
    "st.const.u32 [%rd1], %r1;": "only reads",
    "ld.global.u64 %q1, [%rd1];": "128 bits, 64",
    "st.global.u64 [%rd1], %laneid;": "neither a register nor a variable",
    "st.global.u32 [%rd1], 1e300;": "no number of 32 bits",
    "st.global.u16 [%rd1], sh;": "an address",
    "st.global.u32 [%rd1], _;": "neither a register",
    "st.global.u32 [%rd1], {%r1, %r2};": "2 items",
    "shfl.sync.idx.b32 %r1, %rd2, 0, 31, -1;": "32 bits",
    "vote.sync.ballot.b32 %r1, %r2, -1;": "no predicate",
    "vote.sync.all.pred %p1, _, -1;": "reads no predicate",
    "vote.sync.all.pred !%p1, %p2, -1;": "no predicate",
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {_};": "neither a register",
    "movmatrix.sync.aligned.m8n8.trans.b16 _, %r2;": "32 bits",
    "ld.shared.u32 %r1, [sh+99999999999999999999];": "offset",
    "ld.global.u32 %r1, [%rd1+99999999999999999999];": "offset",
    "st.global.u64 [%rd1], sh+99999999999999999999;": "offset",
    "st.param.u32 [o], %r1;": "only reads",
    "atom.global.add.b32 %r1, [%rd1], %r2;": "none of the ISA",
    "atom.global.add.f16 %h1, [%rd1], %h2;": "noftz",
    "red.global.exch.b32 [%rd1], %r2;": "exch",
    "atom.local.add.u32 %r1, [%rd1], %r2;": "global and shared",
    "atom.global.add.max.u32 %r1, [%rd1], %r2;": "operation",
    "atom.shared.add.v2.f32 {%f1, %f2}, [%rd1], {%f1, %f2};": "global memory",
    "multimem.red.global.add.u32 [%rd1], %r2;": "multimem",
    "shfl.sync.idx.b64 %rd1, %rd2, 0, 31, -1;": "no form",
    "vote.sync.most.pred %p1, %p2, -1;": "no form",
    "redux.sync.add.f32 %f1, %f2, -1;": "no form",
    "match.any.b32 %r1, %r2;": "no form",
    "movmatrix.sync.aligned.m8n8.b16 %r1, %r2;": "no form",
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1, %r2}, [%r3];": "m16n16",
    "ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b6x16_p32 {%r1}, [%r3];": "m8n16",
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1}, [%r3];": "1 registers for 2",
    "bar.warp.sync.aligned -1;": "no form",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_not_modelled_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(UnsupportedError, match=REFUSED[line]) as told:
        copied(line, drawn(np.uint32, 1), drawn(np.uint32, 1))
    assert str(told.value).startswith("line ")


HARMLESS = """
    prefetch.global.L2 [%rd1]; prefetchu.L1 [%rd1]; prefetch.global.L2::evict_last [0];
    applypriority.global.L2::evict_normal [%rd1], 128; discard.global.L2 [%rd1], 128;
    ld.global.nc.L1::no_allocate.L2::evict_first.L2::256B.v2.u32 {%r1, %r2}, [%rd1];
    ld.global.ca.L2::64B.u32 %r1, [%rd1]; ldu.global.u32 %r1, [%rd1];
    ld.global.L1::evict_last.L2::cache_hint.u32 %r1, [%rd1], %rd2;
    ld.weak.global.cv.u32 %r1, [%rd1];
    ld.mmio.relaxed.sys.global.u32 %r1, [%rd1]; ld.volatile.global.u32 %r1, [%rd1];
    st.global.wt.u32 [%rd2], %r1; st.global.cs.u32 [%rd2], %r1; st.weak.global.wb.u32 [%rd2], %r1;
"""


def test_hints_change_nothing() -> None:
    source, result = drawn(np.uint64, 1), np.zeros((32, 1), np.uint64)
    ran = copied(HARMLESS, source, result)
    assert ran.ended and ran.kinds() == []
    assert (result == source & 0xFFFFFFFF).all()

"""Addresses that lie nowhere: findings with the sanitizer, a fault without; never a crash."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_rows import SHARED, copied, drawn
from running import Ran, kernel, run

from mlagen.emulator.ptx import layout as y


def touched(
    line: str, addresses: list[int], sanitize: bool, **how: object
) -> tuple[Ran, np.ndarray]:
    """Run one instruction with each lane's address in %rd3; what %r10 holds then, for each lane."""
    pointers = np.array((addresses * 32)[:32], np.uint64)[:, None]
    result = np.zeros((32, 1), np.uint32)
    ran = copied(
        f"ld.global.u64 %rd3, [%rd1]; mov.u32 %r10, 1; {line} st.global.u32 [%rd2], %r10;",
        pointers,
        result,
        sanitize=sanitize,
        **how,
    )
    return ran, result[:, 0]


@pytest.mark.parametrize("line", ["ld.global.u32 %r10, [%rd3];", "ld.u32 %r10, [%rd3];"])
def test_a_load_outside_every_buffer(line: str) -> None:
    ran, result = touched(line, [0x1000], True)
    (found,) = ran.findings
    assert ran.ended and (found.kind, found.a, found.b) == ("GLOBAL_BOUNDS", 0x1000, 0)
    assert (result == y.POISON).all()
    ran, _ = touched(line, [0x1000], False)
    assert (ran.code, ran.fault, ran.fault_a) == (y.R_FAULT, "FAULT_GLOBAL", 0x1000)


def test_only_the_lanes_outside_get_poison() -> None:
    inside = np.arange(8, dtype=np.uint32)
    at = 0x7_0000_0000
    addresses = [at + 4 * lane if lane != 5 else at + 32 for lane in range(8)]
    ran, result = touched("ld.global.u32 %r10, [%rd3];", addresses, True, buffers=[(at, inside)])
    assert [found.kind for found in ran.findings] == ["GLOBAL_BOUNDS"]
    assert ran.findings[0].b == 5 and ran.findings[0].count == 4
    assert result[:8].tolist() == [0, 1, 2, 3, 4, y.POISON, 6, 7]


def test_the_last_bytes_of_a_buffer() -> None:
    held = np.zeros(4, np.uint32)
    at = 0x7_0000_0000
    for end, fine in ((8, True), (9, False), (16, False)):
        ran, _ = touched("ld.global.u64 %rd4, [%rd3];", [at + end], True, buffers=[(at, held)])
        assert (not ran.findings) == fine
    ran, _ = touched(
        "ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%rd3];", [at + 16], True, buffers=[(at, held)]
    )
    assert ran.kinds() == ["GLOBAL_BOUNDS"]


@pytest.mark.parametrize(
    "line", ["st.global.u32 [%rd3], %r10;", "red.global.add.u32 [%rd3], %r10;"]
)
def test_a_buffer_that_is_only_read(line: str) -> None:
    source, result = drawn(np.uint32, 1), np.zeros((32, 1), np.uint32)
    before = source.copy()
    for sanitize in (True, False):
        ran = copied(
            f"mov.u32 %r10, 3; mov.u64 %rd3, %rd1; {line}",
            source,
            result,
            sanitize=sanitize,
            read_only=("p",),
        )
        assert (ran.kinds(), ran.fault) == (
            (["GLOBAL_BOUNDS"], "") if sanitize else ([], "FAULT_GLOBAL")
        )
    assert (source == before).all()


@pytest.mark.parametrize("offset", [0, 1023, 4096 + 1024, 1 << 24, 1 << 31, (1 << 32) - 4])
def test_shared_memory_has_ends(offset: int) -> None:
    line = "cvt.u32.u64 %r3, %rd3; ld.shared.u32 %r10, [%r3];"
    ran, result = touched(line, [offset & ~3], True)
    assert ran.ended and ran.kinds() == ["SHARED_BOUNDS"] and (result == y.POISON).all()
    ran, _ = touched(line, [offset & ~3], False)
    assert ran.fault == "FAULT_SHARED"


@pytest.mark.parametrize("space", ["local", "param", "const"])
def test_other_spaces_have_ends(space: str) -> None:
    for sanitize in (True, False):
        ran, _ = touched(f"ld.{space}.u32 %r10, [%rd3];", [1 << 20], sanitize)
        assert ran.fault == f"FAULT_{space.upper()}"


def test_another_ctas_memory_is_reached_by_shared_cluster_alone() -> None:
    """Both CTAs read each other's; a third does not exist; .shared means one's own."""
    for name, rank, kinds in (
        ("shared::cluster", 1, []),
        ("shared::cluster", 2, ["SHARED_BOUNDS"]),
        ("shared", 1, ["SHARED_BOUNDS"]),
    ):
        text = kernel(
            f"""mov.u32 %r1, sh; st.{name}.u32 [%r1], 1;
            xor.b32 %r2, %r1, {rank << 24}; ld.{name}.u32 %r3, [%r2];
            barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret;""",
            head=SHARED,
        )
        ran = run(text, grid=(2, 1, 1), cluster=(2, 1, 1))
        assert [kind for kind in ran.kinds() if kind == "SHARED_BOUNDS"] == kinds


def test_a_cta_that_has_ended() -> None:
    """In the mode "latest" CTA 0 runs to its end before CTA 1 begins."""
    text = kernel(
        """mov.u32 %r1, sh; mov.u32 %r4, %cluster_ctarank; setp.eq.u32 %p1, %r4, 0; @%p1 ret;
        xor.b32 %r2, %r1, 0x1000000; st.shared::cluster.u32 [%r2], 1; ret;""",
        head=SHARED,
    )
    ran = run(text, grid=(2, 1, 1), cluster=(2, 1, 1))
    assert ran.ended and ran.kinds() == ["SHARED_GONE"]
    ran = run(text, grid=(2, 1, 1), cluster=(2, 1, 1), sanitize=False)
    assert ran.fault == "FAULT_SHARED"


@pytest.mark.parametrize(
    ("line", "off"),
    [
        ("ld.global.u32 %r10, [%rd3];", 2),
        ("ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%rd3];", 8),
        ("st.global.b64 [%rd3], %rd3;", 4),
        ("red.global.add.u32 [%rd3], %r10;", 1),
        ("st.global.u16 [%rd3], %r10;", 1),
    ],
)
def test_alignment(line: str, off: int) -> None:
    at, held = 0x7_0000_0000, np.zeros(64, np.uint32)
    ran, _ = touched(line, [at + off], True, buffers=[(at, held)])
    assert ran.ended and ran.kinds() == ["ALIGNMENT"] and ran.findings[0].a == at + off
    assert not held.any()
    ran, _ = touched(line, [at + off], False, buffers=[(at, held)])
    assert ran.fault == "FAULT_ALIGN"


LINES = [
    "ld.{s}u8 %h1, [{a}];", "ld.{s}b64 %rd4, [{a}];", "ld.{s}v4.u32 {{%r1,%r2,%r3,%r4}}, [{a}+64];",
    "ld.{s}b128 %q1, [{a}];", "st.{s}u8 [{a}], %r10;", "st.{s}v2.b64 [{a}-16], {{%rd4, %rd4}};",
    "st.{s}b128 [{a}], %q1;",
]  # fmt: skip
SHARED_LINES = [
    "atom.{s}add.u32 %r10, [{a}], 1;", "atom.{s}cas.b128 %q1, [{a}], %q1, %q1;",
    "red.{s}add.f64 [{a}], %d1;",
]  # fmt: skip
EDGES = [
    0, 1, 1023, 1024, 1040, 5119, 5120, 1 << 24, 2 << 24, (1 << 24) + 1040, (1 << 31) - 1, 1 << 31,
    (1 << 32) - 16, 1 << 32, 0x7_0000_0000, 0x7_0000_0100, y.GENERIC_CONST, y.GENERIC_PARAM,
    y.GENERIC_LOCAL, y.GENERIC_SHARED, y.GENERIC_END, 1 << 62, (1 << 63) - 1, 1 << 63,
    (1 << 64) - 1,
]  # fmt: skip
ADDRESS = st.one_of(
    st.builds(lambda e, d: (e + d) % (1 << 64), st.sampled_from(EDGES), st.integers(-64, 64)),
    st.integers(0, (1 << 64) - 1),
)
MATRICES = [
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r1,%r2,%r3,%r4}}, [{a}];",
    "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [{a}], {{%r1,%r2}};",
]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(ADDRESS, min_size=1, max_size=4),
    st.sampled_from(["global.", "shared.", "shared::cluster.", "local.", "param.", "const.", ""]),
    st.integers(0, 20),
    st.booleans(),
    st.booleans(),
)
def test_no_address_reaches_the_hosts_memory(
    addresses: list[int], space: str, which: int, narrow: bool, sanitize: bool
) -> None:
    """Whatever is asked, a run ends, and all but its own memory is as before."""
    lines = list(LINES)
    if space in ("param.", "const."):
        lines = lines[:4]
    elif space != "local.":
        lines += SHARED_LINES
    if space == "shared.":
        lines += MATRICES
    line = lines[which % len(lines)].format(s=space, a="%r3" if narrow else "%rd3")
    around = np.full(3 * 256, 0xA5, np.uint8)
    ran, _ = touched(
        "cvt.u32.u64 %r3, %rd3; mov.u32 %r1, 0; mov.u32 %r2, 0; " + line,
        addresses,
        sanitize,
        buffers=[(0x7_0000_0000, around[256:512])],
    )
    assert ran.ended or ran.fault.startswith("FAULT_")
    assert (around[:256] == 0xA5).all() and (around[512:] == 0xA5).all()

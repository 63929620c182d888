"""A ring in shared memory that bulk copies fill and ordinary loads read, in PTX: when is a place
given back? `released_loads.py` runs it on a GPU, tests give it to the checkers.

Four warps read a tile, each thread `loads` times 16 bytes of it, count the words that are not its
own, and of these the ones of the tile that comes to the place next. One thread fetches tiles;
further warps may load from elsewhere to keep the pipe of loads busy, or a warpgroup multiplies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

READERS = 128  # threads
TILES = 64  # that are fetched in turn
ROOM = 16384  # bytes that noise reads, behind the mbarriers
TILES_AT = 1024 + ROOM
FENCES = {
    "at once": "",
    "fence.proxy.async": "fence.proxy.async;",
    "fence.proxy.async.shared::cta": "fence.proxy.async.shared::cta;",
    "membar.cta": "membar.cta;",
    "bar.sync": "bar.sync 15, 128;",
}


@dataclass(frozen=True)
class Ring:
    """`release`: what stands between the loads and the release: a key of FENCES; "used": the values
    are compared, and a branch depends on the result; "compared": nothing there depends on it;
    "stored": their sum is stored, "shuffled": other lanes get it. `by`: who arrives, "one lane" of
    a warp behind bar.warp.sync or "each lane". `told`: how the fetching thread learns of it: by an
    "mbarrier", by a "bar.arrive" at a named barrier, or it is a reading thread itself, behind a
    "bar.sync". `spread`: a thread's pieces of 16 bytes lie 2 KiB apart, which is without conflicts,
    and not side by side. `load`: "ld" or "ldmatrix". `noise`: warps that load with conflicts;
    `multiplies`: four of them multiply instead. `fence`: what the fetching thread does behind its
    wait."""

    release: str = "at once"
    by: str = "one lane"
    told: str = "mbarrier"
    spread: bool = False
    load: str = "ld"
    noise: int = 0
    slots: int = 2
    loads: int = 8
    multiplies: bool = False
    fence: str = ""

    @property
    def tile(self) -> int:
        """Bytes of one."""
        return 16 * self.loads * READERS

    @property
    def words(self) -> int:
        return self.tile // 4

    @property
    def threads(self) -> int:
        return READERS + 32 * (4 if self.multiplies else self.noise) + 32

    @property
    def smem_bytes(self) -> int:
        return TILES_AT + self.slots * self.tile

    @property
    def name(self) -> str:
        said = [self.release, self.by, self.told, f"{self.loads} {self.load}"]
        said += ["spread"] if self.spread else []
        said += [f"{self.fence} before the copy"] if self.fence else []
        return ", ".join([*said, "beside wgmma" if self.multiplies else f"{self.noise} more warps"])


def tiles_of(ring: Ring) -> npt.NDArray[np.uint32]:
    """What the tiles hold: of each word its tile and its place."""
    return np.arange(TILES * ring.words, dtype=np.uint32)


def ptx(ring: Ring) -> str:
    """The kernel `ring(source, out, fills)`. `out`: two uint32 a thread of the readers of each
    block: wrong words, and those of the tile that came next."""
    return _TEXT.format(
        room=ring.smem_bytes,
        threads=ring.threads,
        slots=ring.slots,
        last_slot=ring.slots - 1,
        shift=ring.slots.bit_length() - 1,
        arrivals=READERS // 32 if ring.by == "one lane" else READERS,
        last_warp=ring.threads // 32 - 1,
        values=4 * ring.loads,
        room_words=ROOM // 4,
        first=_first(ring),
        read=_read(ring),
        fetches="\n".join(_fetch(ring)) if ring.told in ("mbarrier", "bar.arrive") else "",
        noise=_multiply() if ring.multiplies else _NOISE if ring.noise else "",
        sums=128 if ring.multiplies else 1,
    )


def _copy(ring: Ring) -> list[str]:
    """Fetch tile %f to slot %slot, by the lane for which %one holds."""
    return [
        f"and.b32 %w, %f, {TILES - 1};",
        f"and.b32 %slot, %f, {ring.slots - 1};",
        f"mad.lo.u32 %to, %slot, {ring.tile}, %smem;",
        f"add.u32 %to, %to, {TILES_AT};",
        "mad.lo.u32 %full, %slot, 8, %smem;",
        f"@%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], {ring.tile};",
        f"mul.wide.u32 %far, %w, {ring.tile};",
        "add.u64 %far, %far, %source;",
        "@%one cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        f"[%to], [%far], {ring.tile}, [%full];",
    ]


def _fetch(ring: Ring) -> list[str]:
    """The fetching warp: one lane of it where an mbarrier tells it, all where a barrier does."""
    wait = [
        f"shr.u32 %parity, %f, {ring.slots.bit_length() - 1};",
        "sub.u32 %parity, %parity, 1;",
        "and.b32 %parity, %parity, 1;",
        f"and.b32 %slot, %f, {ring.slots - 1};",
        "mad.lo.u32 %empty, %slot, 8, %smem;",
        "EMPTY:",
        "mbarrier.try_wait.parity.shared::cta.b64 %q, [%empty + 64], %parity;",
        "@!%q bra EMPTY;",
    ]
    if ring.told == "bar.arrive":
        wait = [f"and.b32 %slot, %f, {ring.slots - 1};", "add.u32 %w, %slot, 1;",
                "bar.sync %w, 160;"]  # fmt: skip
    return [
        "setp.ne.u32 %p, %lane, 0;",
        *(["@%p bra DONE;"] if ring.told == "mbarrier" else []),
        "setp.eq.u32 %one, %lane, 0;",
        "mov.u32 %f, 0;",
        "FETCH:",
        "setp.ge.u32 %p, %f, %fills;",
        "@%p bra DONE;",
        f"setp.lt.u32 %p, %f, {ring.slots};",
        "@%p bra FREE;",
        *wait,
        *([ring.fence] if ring.fence else []),
        "FREE:",
        *_copy(ring),
        "add.u32 %f, %f, 1;",
        "bra FETCH;",
    ]


def _first(ring: Ring) -> str:
    """A reading thread that fetches fills the ring before it reads."""
    if ring.told in ("mbarrier", "bar.arrive"):
        return ""
    return "\n".join([
        "setp.eq.u32 %one, %thread, 0;",
        "mov.u32 %f, 0;",
        "FIRST:",
        "setp.lt.u32 %p, %f, %fills;",
        "@!%p bra READS;",
        *_copy(ring),
        "add.u32 %f, %f, 1;",
        f"setp.lt.u32 %p, %f, {ring.slots};",
        "@%p bra FIRST;",
        "READS:",
    ])  # fmt: skip


def _read(ring: Ring) -> str:
    """The loads, the comparison, and the release at its place."""
    names = [f"%v{n}" for n in range(4 * ring.loads)]
    loads, words = [], []  # the number of a word within the tile, as register + constant
    for n in range(ring.loads):
        held = "{" + ", ".join(names[4 * n : 4 * n + 4]) + "}"
        step = 2048 * n if ring.spread else 16 * n
        if ring.load == "ldmatrix":
            step = 2048 * n
            loads.append(f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {held}, [%at + {step}];")
        else:
            loads.append(f"ld.shared.v4.b32 {held}, [%at + {step}];")
        words += [step // 4 + (32 * j if ring.load == "ldmatrix" else j) for j in range(4)]
    compares = []
    for name, word in zip(names, words, strict=True):
        compares += [
            f"add.u32 %t, %word, {word};",
            f"setp.ne.u32 %p, {name}, %t;",
            "@%p add.u32 %wrong, %wrong, 1;",
            f"add.u32 %t, %later, {word};",
            f"setp.eq.u32 %p, {name}, %t;",
            "@%p add.u32 %next, %next, 1;",
        ]
    stride = 16 if ring.spread or ring.load == "ldmatrix" else 16 * ring.loads
    first = (
        ["mad.lo.u32 %word, %warp, 128, %lane;"] if ring.load == "ldmatrix"
        else [f"mul.lo.u32 %word, %thread, {stride // 4};"]
    )  # fmt: skip
    before = [
        *first,
        f"and.b32 %w, %i, {TILES - 1};",
        f"mad.lo.u32 %word, %w, {ring.words}, %word;",
        f"add.u32 %w, %i, {ring.slots};",
        f"and.b32 %w, %w, {TILES - 1};",
        *(line.replace("%word", "%later") for line in first),
        f"mad.lo.u32 %later, %w, {ring.words}, %later;",
        f"mad.lo.u32 %at, %slot, {ring.tile}, %smem;",
        f"mad.lo.u32 %at, %thread, {stride}, %at;",
        f"add.u32 %at, %at, {TILES_AT};",
    ]
    # What ptxas may not move before the release, and the comparisons wait for.
    last = ["ld.volatile.shared.u32 %t, [%smem + 1024];", "add.u32 %word, %word, %t;",
            "add.u32 %later, %later, %t;"]  # fmt: skip
    release = _release(ring)
    if ring.release in FENCES:
        order = [FENCES[ring.release], *release, *last, *compares]
    elif ring.release == "used":
        tied = ["setp.ne.u32 %p, %wrong, 0xFFFFFFFF;", "@!%p bra DONE;"]
        order = [*compares, *tied, *release]
    elif ring.release == "compared":
        order = [*compares, *release]
    else:
        sums = [f"mov.b32 %t, {names[0]};", *(f"xor.b32 %t, %t, {name};" for name in names[1:])]
        used = {
            "stored": ["mad.lo.u32 %w, %thread, 4, %smem;", "st.shared.u32 [%w + 9216], %t;"],
            "shuffled": ["shfl.sync.bfly.b32 %kept, %t, 1, 31, 0xFFFFFFFF;"],
        }[ring.release]
        shown = ["setp.eq.u32 %p, %kept, 0x12345678;", "@%p add.u32 %wrong, %wrong, 1;"]
        shown = shown if ring.release == "shuffled" else []
        order = [*sums, *used, *release, *last, *compares, *shown]
    return "\n".join([*before, *loads, *order])


def _release(ring: Ring) -> list[str]:
    arrive = "mbarrier.arrive.shared::cta.b64 _, [%full + 64];"
    if ring.told == "mbarrier":
        if ring.by == "each lane":
            return [arrive]
        return ["bar.warp.sync 0xffffffff;", "setp.eq.u32 %one, %lane, 0;", f"@%one {arrive}"]
    if ring.told == "bar.arrive":  # not for the last tiles: nobody waits there
        return [
            f"add.u32 %f, %i, {ring.slots};",
            "setp.lt.u32 %p, %f, %fills;",
            "add.u32 %w, %slot, 1;",
            "@%p bar.arrive %w, 160;",
        ]
    return [
        "bar.sync 14, 128;",
        f"add.u32 %f, %i, {ring.slots};",
        "setp.lt.u32 %p, %f, %fills;",
        "setp.eq.u32 %one, %thread, 0;",
        "and.pred %one, %one, %p;",
        "mov.u32 %kept, %slot;",
        *_copy(ring),
        "mov.u32 %slot, %kept;",
    ]


_NOISE = """
mad.lo.u32 %at, %lane, 128, %smem;
mov.u32 %f, 0;
LOUD:
ld.shared.v4.b32 {%v0, %v1, %v2, %v3}, [%at + 1024];
ld.shared.v4.b32 {%v4, %v5, %v6, %v7}, [%at + 1040];
ld.shared.v4.b32 {%v8, %v9, %v10, %v11}, [%at + 1056];
ld.shared.v4.b32 {%v12, %v13, %v14, %v15}, [%at + 1072];
xor.b32 %wrong, %v0, %v4;
xor.b32 %next, %v8, %v12;
xor.b32 %wrong, %wrong, %next;
setp.eq.u32 %p, %wrong, 12345;
@%p bra DONE;
add.u32 %f, %f, 1;
shl.b32 %t, %fills, 3;
setp.lt.u32 %p, %f, %t;
@%p bra LOUD;
bra DONE;
"""


def _multiply() -> str:
    """A warpgroup that multiplies what lies in the room, 64 x 16 by 16 x 256, without a swizzle."""
    sums = "{" + ", ".join(f"%sum{n}" for n in range(128)) + "}"
    product = (
        f"wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {sums}, %left, %right, "
        "1, 1, 1, 0, 0;"
    )
    zeros = [f"mov.f32 %sum{n}, 0f00000000;" for n in range(128)]
    return "\n".join([
        *zeros,
        "add.u32 %at, %smem, 1024;",
        "shr.u32 %at, %at, 4;",
        "cvt.u64.u32 %left, %at;",
        # 128 bytes between cores of 8 rows by 16 bytes in either direction, in units of 16.
        "or.b64 %left, %left, 0x0000001000080000;",
        "mov.b64 %right, %left;",
        "mov.u32 %f, 0;",
        "MULTIPLY:",
        "wgmma.fence.sync.aligned;",
        product, product, product, product,
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
        "add.u32 %f, %f, 1;",
        "shl.b32 %t, %fills, 2;",
        "setp.lt.u32 %p, %f, %t;",
        "@%p bra MULTIPLY;",
        "setp.eq.f32 %p, %sum0, 0f7F000000;",  # never, but for ptxas
        "@%p st.shared.f32 [%smem + 1024], %sum0;",
    ])  # fmt: skip


_TEXT = """.version 8.0
.target sm_90a
.address_size 64

.extern .shared .align 128 .b8 room[];
.visible .entry ring(.param .u64 source, .param .u64 out, .param .u32 fills)
.maxntid {threads}, 1, 1
{{
.reg .b32 %v<{values}>, %thread, %lane, %warp, %smem, %i, %f, %w, %t, %at, %slot, %kept, %to;
.reg .b32 %full, %empty, %parity, %fills, %wrong, %next, %word, %later, %block;
.reg .b64 %source, %far, %out;
.reg .pred %p, %q, %one;
.reg .b64 %left, %right;
.reg .f32 %sum<{sums}>;
mov.u32 %thread, %tid.x;
and.b32 %lane, %thread, 31;
shr.u32 %warp, %thread, 5;
mov.u32 %smem, room;
ld.param.u64 %source, [source];
cvta.to.global.u64 %source, %source;
ld.param.u64 %out, [out];
cvta.to.global.u64 %out, %out;
ld.param.u32 %fills, [fills];
mov.u32 %i, %thread;
CLEAR:
shl.b32 %at, %i, 2;
add.u32 %at, %at, %smem;
st.shared.u32 [%at + 1024], %i;
add.u32 %i, %i, {threads};
setp.lt.u32 %p, %i, {room_words};
@%p bra CLEAR;
fence.proxy.async;
setp.ne.u32 %p, %thread, 0;
@%p bra BEGIN;
mov.u32 %i, 0;
INIT:
mad.lo.u32 %at, %i, 8, %smem;
mbarrier.init.shared::cta.b64 [%at], 1;
mbarrier.init.shared::cta.b64 [%at + 64], {arrivals};
add.u32 %i, %i, 1;
setp.lt.u32 %p, %i, {slots};
@%p bra INIT;
fence.mbarrier_init.release.cluster;
fence.proxy.async;
BEGIN:
bar.sync 0;
setp.eq.u32 %p, %warp, {last_warp};
@%p bra FETCHES;
setp.gt.u32 %p, %warp, 3;
@%p bra NOISE;
mov.u32 %wrong, 0;
mov.u32 %next, 0;
{first}
mov.u32 %i, 0;
READ:
setp.ge.u32 %p, %i, %fills;
@%p bra STORE;
and.b32 %slot, %i, {last_slot};
shr.u32 %parity, %i, {shift};
and.b32 %parity, %parity, 1;
mad.lo.u32 %full, %slot, 8, %smem;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %q, [%full], %parity;
@!%q bra WAIT;
{read}
add.u32 %i, %i, 1;
bra READ;
STORE:
mov.u32 %block, %ctaid.x;
mad.lo.u32 %block, %block, 128, %thread;
mul.wide.u32 %far, %block, 8;
add.u64 %out, %out, %far;
st.global.v2.u32 [%out], {{%wrong, %next}};
bra DONE;
FETCHES:
{fetches}
bra DONE;
NOISE:
{noise}
DONE:
ret;
}}
"""

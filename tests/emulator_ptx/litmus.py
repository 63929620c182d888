"""Litmus tests of memory order: an access, what orders it, another access to the same bytes; and
the verdict that the PTX ISA gives.

The facts, of PTX ISA 9.0: "Async Proxy" (bulk copies are of the async proxy, which other accesses
meet behind a fence.proxy.async; their completion is followed by an implicit one), "cp.async",
"st.async" and "red.async" (of the generic proxy), "wgmma.mma_async" (of the async proxy), "membar,
fence" (a fence of the async proxy is for the memory that it names), "Completion Mechanisms". Two
verdicts are of this emulator: what cp.async wrote needs a fence by the letter only, as published
kernels do without it (docs/foreign_ptx.md); and an asynchronous write after a generic read needs
none.
"""

from __future__ import annotations

from dataclasses import dataclass

SILENT, LETTER, ERROR = "silent", "letter", "error"
BYTES = 128


@dataclass(frozen=True)
class Kind:
    """An access of a warp to the 128 bytes, or of an agent that it starts.

    `text`: for lanes of {all}, or the lane of {one}; {x} is the address, {own} that of a lane's
    word, {bar} an mbarrier of its own, {away} and {lane} other memory. `done`: what completes it.
    """

    text: str
    done: str = ""
    writes: bool = False
    atomic: bool = False
    proxied: bool = False  # through the async proxy
    group: bool = False  # of a warpgroup

    @property
    def later(self) -> bool:
        """Whether it is over at `done` only."""
        return bool(self.done)


_EXPECT = "{one} mbarrier.arrive.expect_tx.shared::cta.b64 _, [{bar}], %d;\n"
_BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
_TENSOR = "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes"
_WAIT = "WAIT_{n}: mbarrier.try_wait.parity.shared::cta.b64 %p9, [{bar}], 0;\n@!%p9 bra WAIT_{n};\n"
_GROUP = "{one} cp.async.bulk.commit_group;\n"
_READ = "{one} cp.async.bulk.wait_group.read 0;\n"
_WRITTEN = "{one} cp.async.bulk.wait_group 0;\n"

# The bytes lie in shared memory.
SHARED = {
    "ld": Kind("{all} ld.shared.u32 %r20, [{own}];\n{all} st.shared.u32 [{lane}], %r20;"),
    "st": Kind("{all} st.shared.u32 [{own}], %r1;", writes=True),
    "red": Kind("{all} red.shared.add.u32 [{own}], 1;", writes=True, atomic=True),
    "cp.async": Kind(
        "{all} cp.async.ca.shared.global [{own}], [%rd5], 4;",
        "{all} cp.async.wait_all;\n",
        writes=True,
    ),
    "st.async": Kind(
        _EXPECT % 4 + "{one} st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32\n"
        " [{x}], %r1, [{bar}];",
        _WAIT,
        writes=True,
    ),
    "bulk load": Kind(
        _EXPECT % BYTES + "{one} " + _BULK + " [{x}], [%rd6], 128, [{bar}];",
        _WAIT,
        writes=True,
        proxied=True,
    ),
    "tensor load": Kind(
        _EXPECT % BYTES + "{one} " + _TENSOR + " [{x}], [m, {{0}}], [{bar}];",
        _WAIT,
        writes=True,
        proxied=True,
    ),
    "bulk store": Kind(
        "{one} cp.async.bulk.global.shared::cta.bulk_group [{away}], [{x}], 128;\n" + _GROUP,
        _READ,
        proxied=True,
    ),
    "tensor store": Kind(
        "{one} cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [m, {{{tile}}}], [{x}];\n"
        + _GROUP,
        _READ,
        proxied=True,
    ),
    "wgmma": Kind(
        """@!%p3 bra PAST_{n};
        shr.u32 %r40, {x}, 4;
        cvt.u64.u32 %rd40, %r40;
        or.b64 %rd40, %rd40, 0x1000080000;
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%f0, %f1, %f2, %f3}},
         {{%r41, %r41, %r41, %r41}}, %rd40, 0, 1, 1, 0;
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;
        PAST_{n}:""",
        proxied=True,
        group=True,
    ),
}
# The bytes lie in global memory.
GLOBAL = {
    "ld": Kind("{all} ld.global.u32 %r20, [{own}];"),
    "st": Kind("{all} st.global.u32 [{own}], %r1;", writes=True),
    "red": Kind("{all} red.global.add.u32 [{own}], 1;", writes=True, atomic=True),
    "cp.async": Kind(
        "{all} cp.async.ca.shared.global [{lane}], [{own}], 4;", "{all} cp.async.wait_all;\n"
    ),
    "bulk load": Kind(
        _EXPECT % BYTES + "{one} " + _BULK + " [{away}], [{x}], 128, [{bar}];", _WAIT, proxied=True
    ),
    "tensor load": Kind(
        _EXPECT % BYTES + "{one} " + _TENSOR + " [{away}], [m, {{0}}], [{bar}];",
        _WAIT,
        proxied=True,
    ),
    "bulk store": Kind(
        "{one} cp.async.bulk.global.shared::cta.bulk_group [{x}], [{away}], 128;\n" + _GROUP,
        _WRITTEN,
        writes=True,
        proxied=True,
    ),
    "bulk sum": Kind(
        "{one} cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [{x}], [{away}], 128;\n"
        + _GROUP,
        _WRITTEN,
        writes=True,
        atomic=True,
        proxied=True,
    ),
    "tensor store": Kind(
        "{one} cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [m, {{0}}], [{away}];\n"
        + _GROUP,
        _WRITTEN,
        writes=True,
        proxied=True,
    ),
}
SPACES = {"shared": SHARED, "global": GLOBAL}
FENCES = {
    "": (),
    "fence.proxy.async;": ("shared", "global"),
    "fence.proxy.async.shared::cta;": ("shared",),
    "fence.proxy.async.shared::cluster;": ("shared",),
    "fence.proxy.async.global;": ("global",),
    "fence.acq_rel.gpu;": (),
}
# What comes between, by what warp 0 does and what the others do.
ORDERS = {
    "nothing": ("", ""),
    "bar.sync": ("bar.sync 1, 256;\n", "bar.sync 1, 256;\n"),
    "bar.arrive": ("bar.arrive 1, 256;\n", "bar.sync 1, 256;\n"),
    "mbarrier": (
        "bar.warp.sync 0xffffffff;\n{one} mbarrier.arrive.shared::cta.b64 _, [order];\n",
        "ORDER: mbarrier.try_wait.parity.shared::cta.b64 %p9, [order], 0;\n@!%p9 bra ORDER;\n",
    ),
    "relaxed": (
        "bar.warp.sync 0xffffffff;\n"
        "{one} mbarrier.arrive.relaxed.cluster.shared::cta.b64 _, [order];\n",
        "ORDER: mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 %p9, [order], 0;\n"
        "@!%p9 bra ORDER;\n",
    ),
    "griddepcontrol": ("griddepcontrol.launch_dependents;\n", "griddepcontrol.wait;\n"),
}
NO_ORDER = ("nothing", "relaxed", "griddepcontrol")


@dataclass(frozen=True)
class Case:
    """Warp 0 makes `first`, warp 4 (or its warpgroup) `second`. `done`: warp 0 waits for what it
    started before it goes on. `fence`: of warp 0 before the order, or, `behind` it, of the others.
    """

    space: str
    first: str
    second: str
    order: str
    done: bool = True
    fence: str = ""
    behind: bool = False

    @property
    def kinds(self) -> tuple[Kind, Kind]:
        return SPACES[self.space][self.first], SPACES[self.space][self.second]

    @property
    def name(self) -> str:
        """For a test's id."""
        parts = [self.space, self.first, self.order, self.second]
        parts += [] if self.done else ["not waited for"]
        parts += [self.fence.rstrip(";") + (" behind" if self.behind else "")] if self.fence else []
        return ", ".join(parts)

    def verdict(self) -> str:
        """What the ISA says; see the module."""
        first, second = self.kinds
        if not (first.writes or second.writes) or (first.atomic and second.atomic):
            return SILENT
        if self.order in NO_ORDER or (first.later and not self.done):
            return ERROR
        if first.proxied or not first.writes or not second.proxied or self.first == "st.async":
            return SILENT
        if self.space in FENCES[self.fence]:
            return SILENT
        return LETTER if self.first == "cp.async" else ERROR

    def body(self) -> str:
        """The kernel's instructions."""
        first, second = self.kinds
        x, own = ("%r3", "%r10") if self.space == "shared" else ("%rd1", "%rd4")
        moved = "%rd{}" if self.space == "shared" else "%r{}"
        mine = {"all": "@%p1", "one": "@%p5", "x": x, "own": own, "bar": "ma", "n": "A",
                "away": moved.format(7), "lane": "%r11", "tile": 64}  # fmt: skip
        theirs = {"all": "@%p2", "one": "@%p6", "x": x, "own": own, "bar": "mb", "n": "B",
                  "away": moved.format(8), "lane": "%r12", "tile": 128}  # fmt: skip
        before, after = ORDERS[self.order]
        fence = self.fence + "\n" if self.fence else ""
        return (
            BEGIN
            + "@!%p1 bra OTHERS;\n"
            + first.text.format(**mine)
            + "\n"
            + (first.done.format(**mine) if self.done else "")
            + ("" if self.behind else fence)
            + before.format(**mine)
            + "bra END;\nOTHERS:\n"
            + after.format(**theirs)
            + (fence if self.behind else "")
            + ("" if second.group else "@!%p2 bra END;\n")
            + second.text.format(**theirs)
            + "\n"
            + second.done.format(**theirs)
            + "END:\nret;"
        )


HEAD = (
    ".shared .align 8 .b64 ma;\n.shared .align 8 .b64 mb;\n.shared .align 8 .b64 order;\n"
    ".shared .align 1024 .b8 buf[4096];"
)
# %p1: warp 0, %p2: warp 4, %p3: warps 4 to 7, %p5 and %p6: lane 0 of warps 0 and 4. %r3 and %rd1:
# the bytes; %r10, %rd4: a lane's word; %r7, %r8, %rd7, %rd8: other memory; %r11, %r12: words.
BEGIN = """
mov.u32 %r1, %tid.x;
and.b32 %r2, %r1, 31;
shr.u32 %r4, %r1, 5;
setp.eq.u32 %p1, %r4, 0;
setp.eq.u32 %p2, %r4, 4;
setp.ge.u32 %p3, %r4, 4;
setp.eq.u32 %p5, %r1, 0;
setp.eq.u32 %p6, %r1, 128;
ld.param.u64 %rd1, [p];
mov.u32 %r3, buf;
mad.lo.u32 %r10, %r2, 4, %r3;
mad.wide.u32 %rd4, %r2, 4, %rd1;
add.u64 %rd5, %rd4, 2048;
add.u64 %rd6, %rd1, 2048;
add.u64 %rd7, %rd1, 1024;
add.u64 %rd8, %rd1, 1536;
add.u32 %r7, %r3, 1024;
add.u32 %r8, %r3, 2048;
add.u32 %r11, %r10, 3072;
add.u32 %r12, %r10, 3584;
mov.b32 %r41, 0;
mov.f32 %f0, 0f00000000;
mov.f32 %f1, %f0;
mov.f32 %f2, %f0;
mov.f32 %f3, %f0;
mad.lo.u32 %r21, %r1, 16, %r3;
st.shared.v4.u32 [%r21], {%r41, %r41, %r41, %r41};
@%p5 mbarrier.init.shared::cta.b64 [ma], 1;
@%p5 mbarrier.init.shared::cta.b64 [mb], 1;
@%p5 mbarrier.init.shared::cta.b64 [order], 1;
fence.mbarrier_init.release.cluster;
fence.proxy.async;
bar.sync 0;
"""


def cases() -> list[Case]:
    """All of them: each pair of accesses, by all that may order it; fences where they count."""
    made = []
    for space, kinds in SPACES.items():
        for first in kinds:
            if kinds[first].group:
                continue
            for second in kinds:
                for order in ORDERS:
                    made.append(Case(space, first, second, order))
                    if kinds[first].later and order not in NO_ORDER:
                        made.append(Case(space, first, second, order, done=False))
                crosses = kinds[second].proxied and not kinds[first].proxied
                if crosses and kinds[first].writes:
                    made += [
                        Case(space, first, second, order, fence=fence, behind=behind)
                        for order in ("bar.sync", "mbarrier")
                        for fence in list(FENCES)[1:]
                        for behind in (False, True)
                    ]
    return made

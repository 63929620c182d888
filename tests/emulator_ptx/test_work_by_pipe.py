"""What an instruction is to each pipe of an SM, by `benchmarks/mla_sparse_vs_flashmla_sm100.py`."""

from __future__ import annotations

from collections import Counter

import mla_sparse_vs_flashmla_sm100 as bench
import pytest

from mlagen.errors import UnsupportedError
from mlagen.ptx import read_ptx

HEAD = """
.version 8.6
.target sm_100a
.address_size 64
.visible .entry k()
{
    .reg .pred %p; .reg .b16 %h; .reg .b32 %r<9>; .reg .b64 %d<4>; .reg .f32 %f<4>;
    mov.b32 %r1, 0x8200490; mov.b32 %r2, 0x4200490;
"""
MMA = "tcgen05.mma.cta_group::{}.kind::f16 [%r0], {}, %d1, {}, 1;"


# M 128, N 128: 2 * 128 * 128 * 16 operations, 256 rows of 32 bytes; M 64: 64 rows fewer.
@pytest.mark.parametrize(("text", "work"), [
    (MMA.format(1, "%d0", "%r1"),
     {"products": 1, "tensor": 524288, "SMEM of products": 8192, "SMEM": 8192}),
    (MMA.format(2, "[%r0]", "%r1"),
     {"products": 1, "tensor": 524288, "SMEM of products": 4096, "SMEM": 4096}),
    ("tcgen05.mma.ws.cta_group::1.kind::f16 [%r0], %d0, %d1, %r2, 1, 0;",
     {"products": 1, "tensor": 262144, "SMEM of products": 6144, "SMEM": 6144}),
    ("tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r3, %r4}, [%r0];", {"TMEM words, ld": 64}),
    ("tcgen05.st.sync.aligned.32x32b.x2.b32 [%r0], {%r3, %r4};", {"TMEM words, st": 64}),
    ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r0];",
     {"commits": 1}),
    ("cp.async.cg.shared.global [%r0], [%d0], 16, %r3;",
     {"cp.async": 1, "bytes fetched": 512, "SMEM": 512}),
    ("cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes "
     "[%r0], [%d0, {%r1, %r2, %r3, %r4, %r5}], [%r6];",
     {"gather4": 1, "bytes fetched": 512, "SMEM": 512}),
    ("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r0];", {"mbarrier arrivals": 1}),
    ("mbarrier.try_wait.parity.shared::cta.b64 %p, [%r0], 0;", {"mbarrier waits": 1}),
    ("bar.sync 1, 128;", {"named barriers": 1}),
    ("ex2.approx.ftz.f32 %f0, %f1;", {"ex2": 32}),
    ("fma.rn.f32x2 %d0, %d1, %d2, %d3;", {"fp32": 64}),
    ("mul.ftz.f32 %f0, %f1, %f2;", {"fp32": 32}),
    ("add.s32 %r3, %r4, %r5;", {}),
    ("st.shared.v4.b32 [%r0], {%r1, %r2, %r3, %r4};", {"SMEM of threads": 512, "SMEM": 512}),
    ("ld.shared.b16 %h, [%r0];", {"SMEM of threads": 64, "SMEM": 64}),
    ("ld.global.b32 %r3, [%d0];", {}),
], ids=lambda x: x[:40] if isinstance(x, str) else "")  # fmt: skip
def test_work_of_an_instruction(text: str, work: dict[str, float]) -> None:
    entry = read_ptx(f"{HEAD}{text}\nret;\n}}\n").entries[0]
    (index,) = (i.index for i in entry.instructions if i.name not in ("mov", "ret"))
    found = bench.work(entry, {index: 3}, box=128)
    assert {name: n for name, n in found.items() if n} == {
        "issue": 3, **{name: 3 * n for name, n in work.items()}
    }  # fmt: skip


def test_a_shape_that_the_text_does_not_tell() -> None:
    text = MMA.format(1, "%d0", "%r3")
    entry = read_ptx(f"{HEAD}add.s32 %r3, %r1, %r2;\n{text}\nret;\n}}\n").entries[0]
    with pytest.raises(UnsupportedError, match="does not tell its instruction descriptor"):
        bench.work(entry, dict.fromkeys(range(9), 1), box=128)


def test_the_bound_is_the_slowest_pipe_of_one_sm() -> None:
    """128 heads on two SMs; work that both lists have is left out."""

    def run(_heads: int, topk: int) -> object:
        tiles = topk // 64
        work = {"tensor": 99 + tiles * 17825792, "SMEM": tiles * 2 * 128 * 2176, "issue": 8 * tiles}
        return bench.Run(Counter(work), 0.25 * tiles, 0, 0.0)

    told = bench.compared("ours", run, 128, 128, 256)
    assert (told.clocks["tensor"], told.clocks["SMEM"], told.clocks["issue"]) == (1088, 2176, 1)
    assert (told.bound, told.share, told.error) == ("SMEM", 0.5, 1.0)
    assert "| at most, of the tensor peak | 50% |" in bench.told([told])

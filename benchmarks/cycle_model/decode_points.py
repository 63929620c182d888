"""Published measurements of AITER's MLA decode kernels on MI355X and MI350X.

All by AITER's own tests, which sum the time of a call's kernels on the device, over copies of the
cache that no cache holds. Sources are pull requests of AITER: 5456 (32 heads), 3072 (128 heads,
e4m3), 3003 (32 heads and four new tokens, e4m3), and the notes on its Gluon kernels (2685 and 3311,
MI350X, of TFLOP/s or TB/s). `commit` brought the object that was current then.

Not here, as no object of theirs is stored and no compiler for them is at hand: kernels of the same
pull requests in HipKittens (2039, 3072, 3003), Opus (4706, 5651) and Gluon (2685, 3311; tokenspeed
664; ATOM 2023). Not here either: calls with few keys (2039), which are start and end alone, and
ratios without a time (4144).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cycle_model.aiter_decode import (
    D_QK,
    D_V,
    DECODE,
    persistent_groups,
    split_count,
    split_groups,
)
from cycle_model.decode import Part

from mlagen.timing.constants import Machine

_SPLITS: Final = 32  # most of a sequence, in the test of persistent kernels


@dataclass(frozen=True, slots=True)
class DecodePoint:
    """A call: `heads` query heads times new tokens, sequences of `keys` each. `us`: measured.
    `fixes`: `hbm_rows` is fitted to it. `doubt`: why it may not be what it says."""

    kernel: str
    commit: str
    source: str
    heads: int
    batch: int
    keys: int
    us: float
    max_clock: float = 2.4
    watts: float = 1400.0
    fixes: bool = False
    doubt: str = ""

    def chip(self, on: Machine) -> Machine:
        """The chip that was measured."""
        return on.changed(max_clock=self.max_clock, power_limit=self.watts)

    def groups(self, on: Machine) -> list[list[Part]]:
        """Parts by workgroup, as AITER distributes them."""
        kernel, lengths = DECODE[self.kernel], [self.keys] * self.batch
        if kernel.persistent:
            return persistent_groups(lengths, on.cus, _SPLITS)
        return split_groups(lengths, split_count(self.batch, self.keys, on.cus), kernel.tile)


def _swept(
    kernel: str, commit: str, source: str, heads: int, table: dict[int, dict[int, float]],
    fixes: tuple[int, int] | None = None,
) -> list[DecodePoint]:  # fmt: skip
    """`table`: microseconds by keys and batch."""
    return [
        DecodePoint(kernel, commit, source, heads, batch, keys, us, fixes=(batch, keys) == fixes)
        for keys, row in table.items()
        for batch, us in row.items()
    ]


def _gluon(kernel: str, heads: int, batch: int, tflops: float, doubt: str = "") -> DecodePoint:
    flops = 2.0 * batch * 16384 * heads * (D_QK + D_V)
    return DecodePoint(kernel, "c849fd5845", "AITER 2685", heads, batch, 16384,
                       flops / tflops * 1e-6, 2.2, 1000.0, doubt=doubt)  # fmt: skip


_BF16_64 = "mla_a16w16_qh64_qseqlen1_gqaratio64_v3_ps"
_OLD_64 = "MLA_A16W16_1TG_4W_64mx1_16nx1_Coex0_Msk1_QH16"
_BF16_128 = "mla_dec_stage1_bf16_a16w16_subQ128_mqa128"
_WHICH = "which of two objects ran"
POINTS: tuple[DecodePoint, ...] = (
    *_swept(_BF16_64, "a63ede724b", "AITER 5456", 32, {
        4096: {16: 34.7793, 32: 47.2596, 64: 75.7614, 128: 130.537},
        16384: {16: 73.4773, 32: 126.233, 64: 230.744, 128: 428.799},
        65536: {16: 229.433, 32: 431.547, 64: 844.862, 128: 1637.81},
        131072: {16: 433.825, 32: 837.91, 64: 1639.74, 128: 3246.21},
    }, (128, 131072)),
    *_swept("mla_a8w8_qh32_qseqlen1_gqaratio32_ps", "9d0d5e7c77", "AITER 5456", 32, {
        4096: {16: 26.8914, 32: 35.2533, 64: 48.9394, 128: 78.1666}, 16384: {16: 49.038},
    }),
    *_swept("mla_a8w8_qh128_m32x4_n16x2_msk0_ps", "da67a09957", "AITER 3072", 128, {
        8192: {1: 29.806, 3: 29.831, 5: 31.611, 16: 52.138},
        23333: {1: 52.467, 3: 54.562, 5: 57.608, 16: 109.965, 32: 199.795, 64: 403.895,
                128: 724.364, 256: 1422.0},
    }),
    *_swept("mla_a8w8_qh32_qseqlen4_gqaratio32_ps", "b564a7367b", "AITER 3003", 128, {
        1024: {1: 20.005}, 3200: {1: 24.397}, 5200: {1: 28.309}, 8192: {1: 32.999},
        32768: {1: 57.078}, 49152: {1: 74.55}, 70000: {1: 95.418},
    }),
    _gluon(_OLD_64, 64, 64, 350.1, _WHICH),
    _gluon(_OLD_64, 64, 128, 368.1, _WHICH),
    _gluon(_BF16_128, 128, 64, 469.9),
    _gluon(_BF16_128, 128, 128, 476.7),
    DecodePoint("mla_dec_stage1_bf16_a16w16_subQ16_mqa16", "c849fd5845", "AITER 3311", 16, 1,
                10_000_000, 16659.0, 2.2, 1000.0, doubt="11.5 GB: addresses to be translated"),
)  # fmt: skip

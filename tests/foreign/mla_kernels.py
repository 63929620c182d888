"""The decode objects below `mla/`: what each is for, as far as a launch must know it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from mla_oracle import Format


@dataclass(frozen=True, slots=True)
class Kernel:
    """What one decode object is for: AITER's `mla_asm.csv`, and the choices of its launcher.

    `rows`: of the query block [tokens * heads] that one workgroup takes. `mqa`: the argument at
    0x80. `single`: the format of R when there is one split; with more it is fp32. `splits`: the
    most that it can have. `legacy_flag`: the flag for bf16 output lies at 0xF0, as in AITER's
    launcher of 2025, and not at 0x120. `final_single`: one split writes to the pointer at 0xF0.
    `token_items`: work items count keys where others count pages. `prefill`: the stride at 0xA0 is
    a token's and not that of all tokens of a sequence. `unit_kv_scale`: O lacks the scale of kv.
    """

    heads: int
    tokens: int
    q_format: Format
    kv_format: Format
    persistent: bool = False
    causal: bool = True
    lse: bool = False
    round_robin: bool = False
    rows: int = 128
    mqa: int | None = None
    single: Format | None = "bf16"
    splits: int = 16
    legacy_flag: bool = False
    final_single: bool = False
    token_items: bool = False
    page_size: int = 1
    prefill: bool = False
    unit_kv_scale: bool = False

    @property
    def p_format(self) -> Format:
        return self.q_format


def _kernels() -> dict[str, Kernel]:
    b, f = "bf16", "e4m3"
    bf16, fp8 = (partial(Kernel, q_format=x, kv_format=x) for x in (b, f))  # type: ignore[arg-type]
    ps8, ps16 = (partial(k, persistent=True) for k in (fp8, bf16))
    found = {
        "mla_dec_stage1_bf16_a16w16_subQ16_mqa16": bf16(16, 1, rows=16, single=None),
        "mla_dec_stage1_bf16_a16w16_subQ128_mqa128": bf16(128, 1),
        "mla_pfl_bf16_a16w16_causal_subQ16_mqa16": bf16(16, 24, mqa=16, prefill=True),
        "mla_pfl_bf16_a16w16_causal_subQ128_mqa128": bf16(128, 3, mqa=128, prefill=True),
        "mla_a16w16_qh16_m16x4_n16x1_coex0_mask1": bf16(16, 4),
        "mla_a16w16_qh16_m32x4_n16x1_coex0_mask1": bf16(16, 8),
        "mla_a16w16_qh16_m16x4_n16x1_coex0_mask1_ps": ps16(16, 4),
        "mla_a16w16_qh16_m16x4_n16x1_coex0_mask1_lse_ps": ps16(16, 4, lse=True),
        "mla_a16w8_qh16_m16x4_n16x1_coex0_mask1_ps": Kernel(16, 4, "bf16", "e4m3", True),
        "MLA_A16W16_1TG_4W_16mx4_32nx1_Coex0_Msk1_QH16": bf16(32, 2, rows=64),
        # One token: no mask between the tokens of a sequence is in these two objects.
        "MLA_A16W16_1TG_4W_32mx1_16nx1_Coex0_Msk1_QH16": bf16(32, 1, rows=32, final_single=True),
        "MLA_A16W16_1TG_4W_64mx1_16nx1_Coex0_Msk1_QH16": bf16(64, 1, rows=64, final_single=True),
        "mla_a16w16_qh8_qseqlen1_gqaratio8_v3": bf16(8, 1, rows=8, single=None),
        "mla_a16w16_qh8_qseqlen2_gqaratio8": bf16(8, 2, rows=16, mqa=8, causal=False),
        "mla_a16w16_qh8_qseqlen2_gqaratio8_causal": bf16(8, 2, rows=16, mqa=8),
        "mla_a16w16_qh64_qseqlen1_gqaratio64_v3": bf16(64, 1, rows=64),
        "mla_a16w16_qh64_qseqlen1_gqaratio64_lse_v3": bf16(64, 1, rows=64),
        "mla_a8w8_qh128_m32x4_n16x2_msk0": fp8(128, 1, causal=False),
        "mla_a8w8_qh128_m32x4_n16x2_msk1": fp8(128, 1),
        "mla_a8w8_qh8_qseqlen1_gqaratio8_v3": fp8(8, 1, rows=8),
        "mla_a8w8_qh16_qseqlen1_gqaratio16": fp8(16, 1),
        "mla_a8w8_qh16_qseqlen1_gqaratio16_msk0": fp8(16, 1, causal=False),
        "mla_a8w8_qh16_qseqlen2_gqaratio16": fp8(16, 2),
        "mla_a8w8_qh16_qseqlen2_gqaratio16_ps": ps8(16, 2),
        "mla_a8w8_qh16_qseqlen2_gqaratio16_ps_page": ps8(16, 2, token_items=True, page_size=64),
        "mla_a8w8_qh16_qseqlen4_gqaratio16_ps_page": ps8(
            16, 4, token_items=True, page_size=16, unit_kv_scale=True
        ),
        "mla_a8w8_qh16_qseqlen4_gqaratio16": fp8(16, 4, splits=1),
        "mla_a8w8_qh16_qseqlen4_gqaratio16_msk0": fp8(16, 4, splits=1, causal=False),
        "mla_a8w8_qh16_qseqlen4_gqaratio16_ps": ps8(16, 4),
        "mla_a8w8_qh16_qseqlen4_gqaratio16_msk0_ps": ps8(16, 4, causal=False),
    }
    for mask in ("", "_msk0"):
        legacy = partial(fp8, splits=1, legacy_flag=True, causal=not mask)
        found[f"mla_a8w8_qh64_qseqlen4_gqaratio16{mask}"] = legacy(16, 4, rows=64)
    for version in ("", "_v2"):
        found[f"mla_a8w8_qh32_qseqlen4_gqaratio32_msk0{version}"] = legacy(32, 4)
    for lse in ("", "_lse"):
        # The object named for its LSE is the same as the other: it writes none.
        found[f"mla_a8w8_qh32_qseqlen1_gqaratio32{lse}_ps"] = ps8(32, 1)
        found[f"mla_a16w16_qh16_qseqlen4_gqaratio16{lse}_ps"] = ps16(16, 4, lse=bool(lse))
        for mask in ("", "_msk0"):
            rest: dict[str, Any] = {"causal": not mask, "lse": bool(lse)}
            found[f"mla_a8w8_qh16_qseqlen1_gqaratio16{mask}{lse}_ps"] = ps8(16, 1, **rest)
            found[f"mla_a8w8_qh32_qseqlen4_gqaratio8{mask}{lse}_ps"] = ps8(8, 4, **rest)
            for share in ("", "_cprr"):
                rest["round_robin"] = bool(share)
                end = f"{mask}{lse}{share}"
                # These take [tokens, heads] in blocks of rows, of any number of heads.
                for name, kernel in (
                    (f"mla_a8w8_qh16_qseqlen4_gqaratio16{end}_v3_ps", ps8(16, 4, mqa=16, **rest)),
                    (f"mla_a8w8_qh32_qseqlen4_gqaratio32{end}_ps", ps8(32, 4, mqa=32, **rest)),
                    (f"mla_a16w16_qh32_qseqlen4_gqaratio32{end}_ps", ps16(32, 4, mqa=32, **rest)),
                    (
                        f"mla_a16w16_qh64_qseqlen1_gqaratio64{end}_v3_ps",
                        ps16(64, 1, mqa=64, **rest),
                    ),
                ):
                    found[name] = kernel
    return found


KERNELS = _kernels()

"""What the host passes to MLA decode on gfx950, and which problems there is a kernel for."""

from __future__ import annotations

from mlagen.dsl import Signature
from mlagen.dsl.signature import pack
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.problem import MlaDecodeConfig

KEYS = 32  # keys a tile
BF16 = 2
SPAN = 128  # bytes of a row that lie together in LDS: what eight lanes fetch
WAVES = 4  # of a workgroup, each with query rows of its own


def refuse(k: MlaDecodeConfig) -> None:
    """ConfigError where there is no kernel for the problem on gfx950."""
    wanted = {
        "dtype": (k.dtype, "bf16"), "cache_dtype": (k.cache_dtype, "bf16"),
        "compute": (k.compute, "bf16"),
    }  # fmt: skip
    for name, (given, there) in wanted.items():
        if given != there:
            raise ConfigError(
                f"{name}={given}: mla_decode_gfx950 has no such form",
                hint=f"{name}={there} here, or the kernel of sm_90a",
            )


def query_rows(k: MlaDecodeConfig) -> int:
    """Query rows that have the same keys: of all new tokens, where there is one KV head."""
    return k.num_heads * k.q_len if k.num_kv_heads == 1 else k.group


def wave_rows(k: MlaDecodeConfig) -> tuple[int, int]:
    """Query rows that a wave may have, the usual first: as few as let one workgroup have all that
    share keys."""
    return (16, 32) if query_rows(k) <= 16 * WAVES else (32, 16)


def signature(k: MlaDecodeConfig) -> Signature:
    """One workgroup a work item (`mlagen.families.mla_decode.plan`).

    q as [tokens * H, 576], the cache as [pages, page_size, KV heads, 576], o [tokens * H, 512];
    partial_o fp32 [slots, rows, 512] and partial_lse fp32 [slots, rows], log2 units, of items that
    are a part of their sequence, with as many rows as a workgroup has. `lse_stride`: elements of
    lse from head to head.
    """
    return Signature(
        pack(
            ("q", "pointer:bf16", "read"),
            ("cache", "pointer:bf16", "read"),
            ("items", "pointer:int32", "read"),
            ("block_table", "pointer:int32", "read"),
            ("cache_lengths", "pointer:int32", "read"),
            ("o", f"pointer:{k.output_dtype}", "write"),
            ("lse", "pointer:fp32", "write"),
            ("partial_o", "pointer:fp32", "write"),
            ("partial_lse", "pointer:fp32", "write"),
            ("num_blocks", "u32", "value"),
            ("max_pages", "u32", "value"),
            ("lse_stride", "u32", "value"),
            ("scale_log2e", "f32", "value"),
        ),
        grid=(("items", 1),),
        block=(64 * WAVES, 1, 1),
    )

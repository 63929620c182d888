"""What the host passes to MLA decode on Blackwell, and which problems there is a kernel for."""

from __future__ import annotations

from mlagen.attention.latent.nvidia.sizes import COLUMNS, ROWS, TILE
from mlagen.dsl import Signature
from mlagen.dsl.signature import TensorMap, pack
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.problem import MlaDecodeConfig

# Tools find FlashMLA's kernel in a profile by a part of this name.
SYMBOL = "mlagen_flash_fwd_splitkv_mla_kernel_sm100"


def refuse(k: MlaDecodeConfig) -> None:
    """ConfigError where there is no kernel for the problem on Blackwell."""
    for name, given in (("dtype", k.dtype), ("cache_dtype", k.cache_dtype)):
        if given != "bf16":
            raise ConfigError(
                f"{name}={given}: mla_decode_sm100 has no such form",
                hint=f"{name}=bf16 here; mla_decode_sm90, for Hopper, takes {given}",
            )


def box_rows(k: MlaDecodeConfig) -> int:
    """Rows that TMA fetches with one box: those of a tile that lie in one page. 1: only by their
    numbers, four at once."""
    return min(k.page_size, TILE)


def signature(k: MlaDecodeConfig, threads: int) -> Signature:
    """One block a work item (`mlagen.families.mla_decode.plan`).

    q as [tokens * H, 576] and the cache as [blocks * page, KV heads * 576] by tensor map, the cache
    in boxes of a page's rows, and once more in boxes of one row (`rows`); o [tokens * H, 512];
    partial_o fp32 [slots, 64, 512] and partial_lse fp32 [slots, 64], log2 units, of items that are
    a part of their sequence. `lse_stride`: elements of lse from head to head.
    """
    width = k.num_kv_heads * k.d_qk
    boxes = {"cache": box_rows(k), "rows": 1} if box_rows(k) > 1 else {"rows": 1}
    return Signature(
        pack(
            ("q", TensorMap("q", k.dtype, k.d_qk, COLUMNS, ROWS), "read"),
            *(
                (name, TensorMap("cache", k.cache_dtype, width, COLUMNS, rows), "read")
                for name, rows in boxes.items()
            ),
            ("items", "pointer:int32", "read"),
            ("block_table", "pointer:int32", "read"),
            ("cache_lengths", "pointer:int32", "read"),
            ("o", f"pointer:{k.output_dtype}", "write"),
            ("lse", "pointer:fp32", "write"),
            ("partial_o", "pointer:fp32", "write"),
            ("partial_lse", "pointer:fp32", "write"),
            ("max_pages", "u32", "value"),
            ("lse_stride", "u32", "value"),
            ("scale_log2e", "f32", "value"),
        ),
        grid=(("items", 1),),
        block=(threads, 1, 1),
    )

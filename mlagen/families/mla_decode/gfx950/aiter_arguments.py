"""The arguments of AITER's persistent MLA decode kernels, and the problems that they describe."""

from __future__ import annotations

from typing import Literal

from mlagen.attention.latent.gfx950.sizes import VECTOR, WAVES
from mlagen.dsl import KernelArgument, Signature
from mlagen.dsl.signature import Kind
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.problem import MlaDecodeConfig

Access = Literal["read", "write", "value"]

# Byte, name here, kind, access, type. Names that differ there: partial_o is ptr_R, partial_lse
# ptr_LSE, kv_indptr ptr_LTP, kv_page_indices ptr_LTD, kv_last_page_lens ptr_LTL, num_heads s_MQA,
# q_stride s_Q_Bs, page_stride s_Bs, qo_indptr ptr_QTP, work_meta_data ptr_STP, o ptr_RP, lse
# ptr_LSEP, world s_cp_world_size. Scales of e4m3 are there where the problem has them.
# Source: mla_decode_stage1_asm_fwd in AITER's csrc/py_itfs_cu/asm_mla.cu (commit e404860).
_AITER: tuple[tuple[int, str, Kind, Access, str], ...] = (
    (0x00, "partial_o", "pointer", "write", "fp32"),
    (0x10, "partial_lse", "pointer", "write", "fp32"),
    (0x20, "q", "pointer", "read", ""),
    (0x30, "cache", "pointer", "read", ""),
    (0x40, "kv_indptr", "pointer", "read", "int32"),
    (0x50, "kv_page_indices", "pointer", "read", "int32"),
    (0x60, "kv_last_page_lens", "pointer", "read", "int32"),
    (0x70, "scale", "f32", "value", ""),
    (0x80, "num_heads", "u32", "value", ""),
    (0xA0, "q_stride", "u32", "value", ""),
    (0xB0, "page_stride", "u32", "value", ""),
    (0xD0, "qo_indptr", "pointer", "read", "int32"),
    (0xE0, "work_meta_data", "pointer", "read", ""),
    (0xF0, "o", "pointer", "write", "bf16"),
    (0x100, "q_scale", "pointer", "read", "fp32"),
    (0x110, "kv_scale", "pointer", "read", "fp32"),
    (0x130, "lse", "pointer", "write", "fp32"),
    (0x150, "world", "u32", "value", ""),
)
# What `work_meta_data` points to, in padding that no kernel reads: launchers keep it alive.
_HELD = ((0x08, "work_indptr"), (0x18, "work_info_set"))


def aiter_signature(k: MlaDecodeConfig) -> Signature:
    """The arguments of AITER's persistent decode kernels (`mla_a16w16_*_ps`, `mla_a8w8_*_ps`), at
    their offsets, so that host code for these launches a kernel of ours.

    q [tokens, H, 576]; cache [pages, page_size, 1, 576]; `kv_page_indices` holds the pages of all
    sequences, of which `kv_indptr` says whose, `kv_last_page_lens` the keys of each sequence's last
    one; `work_meta_data` two addresses, of work_indptr int32 [workgroups + 1] and work_info_set
    int32 [items, 8]; o [tokens, H, 512]; lse fp32 [tokens, H] or null; partial_o fp32 [rows, H,
    512] and partial_lse fp32 [rows, H], natural units. `num_heads`: H; `q_stride`: bytes of a
    sequence's most tokens; `page_stride`: bytes of a page; `world`: GPUs that share the cache.
    `q_scale` and `kv_scale`: one number each, what e4m3 numbers are multiples of.
    """
    types = {"q": k.q_element, "cache": k.cache_element}
    left_out = {name for name, element in (("q_scale", k.dtype), ("kv_scale", k.cache_dtype))
                if element == "bf16"}  # fmt: skip
    arguments = [
        KernelArgument(
            name,
            offset,
            kind,
            access,
            types.get(name, dtype),
            align=VECTOR if types.get(name) == "fp8_e4m3" else 1,
        )
        for offset, name, kind, access, dtype in _AITER
        if name not in left_out
    ]
    arguments += [
        KernelArgument(name, offset, "pointer", "read", "int32") for offset, name in _HELD
    ]
    ordered = tuple(sorted(arguments, key=lambda argument: argument.offset))
    return Signature(ordered, grid=(("workgroups", 1),), block=(64 * WAVES, 1, 1))


def refuse_aiter(k: MlaDecodeConfig) -> None:
    """ConfigError for a problem that AITER's arguments do not describe."""
    if k.num_kv_heads != 1:
        raise ConfigError(
            f"arguments=aiter, but num_kv_heads={k.num_kv_heads}: AITER's arguments know one",
            hint="num_kv_heads=1, or arguments=mlagen",
        )
    if k.cut_at_start:
        raise ConfigError(
            f"arguments=aiter, but mask={k.mask}: AITER's work items know no window and no chunk",
            hint="mask is causal or null; arguments=mlagen has the others",
        )
    if k.rope_aware:
        raise ConfigError(
            f"arguments=aiter, but cache_dtype={k.cache_dtype}: AITER's arguments know no scales "
            f"of rows",
            hint="cache_dtype=bf16 or fp8_e4m3, or arguments=mlagen",
        )


def loaded(made: Signature) -> Signature:
    """The arguments that the kernel itself loads."""
    held = {name for _, name in _HELD}
    return Signature(tuple(a for a in made.arguments if a.name not in held), made.grid, made.block)

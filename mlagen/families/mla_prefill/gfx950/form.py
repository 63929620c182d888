"""What an MLA prefill kernel takes, in each of its forms, and what it is not generated for."""

from __future__ import annotations

from dataclasses import replace

from mlagen.attention.manifest_facts import Items
from mlagen.attention.prefill.facts import PrefillFacts
from mlagen.attention.prefill.gfx950.common_arguments import prefill_signature, refuse_wide_pages
from mlagen.attention.prefill.gfx950.fragments import FORMATS
from mlagen.attention.prefill.gfx950.streamed_form import (
    KeyArea,
    Operands,
    StreamedForm,
    row_tensors,
)
from mlagen.attention.prefill.gfx950.tensors import PrefillTensors, RowTensor
from mlagen.dsl import KernelArgument, Signature
from mlagen.dsl.signature import Kind
from mlagen.errors import ConfigError
from mlagen.families.mla_prefill.problem import MlaConfigV2, require_plain_mask

AITER_SLOT = 16  # bytes an argument of AITER's launchers takes, whatever its type


def streamed_form(k: MlaConfigV2, *, persistent: bool = False, aiter: bool = False) -> StreamedForm:
    """The problem as streamed prefill takes it. ConfigError for a problem that no kernel is
    generated for, in this form."""
    refuse_wide_pages(k, max(k.k_row_stride, k.v_row_stride))
    if persistent:
        refuse_persistent(k)
    if not aiter:
        items: Items = "several" if persistent else "one"
        made = signature(k, persistent=persistent)
    elif persistent:
        items, made = "aiter", aiter_signature(k)
    else:
        raise ConfigError(
            "arguments=aiter: AITER's arguments are those of its persistent MLA prefill",
            hint="grid=persistent; or arguments=mlagen",
        )
    return StreamedForm(operands(k), made, PrefillFacts.of(k, items))


def operands(k: MlaConfigV2) -> Operands:
    """K's two areas, and V, in the tensors of the problem's form."""
    size = k.element_bytes
    keys = RowTensor("K", "k", k.k_row_stride * size, k.k_width * size)
    rope, rope_byte = keys, k.depth * size
    if k.kv_form == "nope_rope":
        rope, rope_byte = RowTensor("R", "k_rope", k.d_rope * size, 0), 0
    elif k.kv_form == "latent":
        rope_byte = k.rope_cache_offset * size
    values = keys
    if k.kv_form != "latent":
        values = RowTensor("V", "v", k.v_row_stride * size, k.depth * size)
    parts = (KeyArea("nope", k.depth, keys, 0), KeyArea("rope", k.d_rope, rope, rope_byte))
    rows = tuple(dict.fromkeys((keys, rope, values)))
    tensors = PrefillTensors(*row_tensors(k), rows)
    return Operands(FORMATS[k.dtype], tensors, parts, values, k.depth)


def signature(k: MlaConfigV2, *, persistent: bool = False) -> Signature:
    """Pointers first, then numbers, as `prefill_signature` lays them out; shapes are those of
    the config.

    A persistent kernel has a grid of `workgroups` and takes their work besides: `work_indptr`
    and `work_info`, laid out as in `attention.prefill.work`, with rows and blocks numbered
    as in `mla_prefill.call`, and `partial_o` and `partial_lse`.
    """
    tensors = [
        ("q", "pointer", "read", True),
        ("k", "pointer", "read", True),
        ("v", "pointer", "read", k.kv_form != "latent"),
        ("k_rope", "pointer", "read", k.kv_form == "nope_rope"),
        ("o", "pointer", "write", True),
        ("lse", "pointer:fp32", "write", k.lse),
        ("partial_o", "pointer:fp32", "write", persistent),
        ("partial_lse", "pointer:fp32", "write", persistent),
        ("work_indptr", "pointer:int32", "read", persistent),
        ("work_info", "pointer:int32", "read", persistent),
    ]
    made = prefill_signature(k, tensors)
    return replace(made, grid=(("workgroups", 1),)) if persistent else made


def refuse_persistent(k: MlaConfigV2) -> None:
    """ConfigError for a problem that the persistent kernel is not generated for."""
    require_plain_mask(k.mask)
    if not k.ragged:
        raise ConfigError(
            "grid=persistent with ragged=false: work items number packed rows, which q_offsets "
            "says whose they are",
            hint="ragged=true; sequences of one length are packed too",
        )


# ---- AITER's arguments --------------------------------------------------------------------------

# In the order of its slots. Name here, kind, access. Names that differ there: q_offsets is
# qo_indptr, kv_offsets kv_indptr, page_list kv_page_indices, pages num_page, listed num_used_page.
# Source: mla_prefill_ps_asm_fwd in AITER's csrc/py_itfs_cu/asm_mla.cu.
_AITER: tuple[tuple[str, Kind, str, str], ...] = (
    ("q", "pointer", "read", ""),
    ("k", "pointer", "read", ""),
    ("v", "pointer", "read", ""),
    ("o", "pointer", "write", ""),
    ("partial_o", "pointer", "write", "fp32"),
    ("partial_lse", "pointer", "write", "fp32"),
    ("work_indptr", "pointer", "read", "int32"),
    ("work_info", "pointer", "read", "int32"),
    ("q_offsets", "pointer", "read", "int32"),
    ("kv_offsets", "pointer", "read", "int32"),
    ("page_list", "pointer", "read", "int32"),
    ("q_scale", "pointer", "read", "fp32"),
    ("k_scale", "pointer", "read", "fp32"),
    ("v_scale", "pointer", "read", "fp32"),
    ("scale", "f32", "value", ""),
    ("q_rows", "u32", "value", ""),
    ("num_heads", "u32", "value", ""),
    ("pages", "u32", "value", ""),
    ("listed", "u32", "value", ""),
)


def aiter_signature(k: MlaConfigV2) -> Signature:
    """The arguments of AITER's `mla_pfl_qh192_vh128_m32x8_n128x1_causal*`, at its offsets, so that
    host code for these launches a kernel of ours.

    q [q_rows, num_heads, 192], k [pages, num_heads, 192], v [pages, num_heads, 128], o [q_rows,
    num_heads, 128] bf16; `page_list` holds the pages of all sequences, one key each, of which
    `kv_offsets` says whose; the scales of the tensors are one fp32 number each. `scale` is the
    softmax scale alone. Causal rows end where their sequence's keys do.
    """
    refuse_aiter(k)
    arguments = tuple(
        KernelArgument(name, AITER_SLOT * slot, kind, access, dtype)  # type: ignore[arg-type]
        for slot, (name, kind, access, dtype) in enumerate(_AITER)
    )
    return Signature(arguments, grid=(("workgroups", 1),), block=(k.threads, 1, 1))


def refuse_aiter(k: MlaConfigV2) -> None:
    """ConfigError for a problem that AITER's arguments do not describe."""
    refuse_persistent(k)
    wanted: dict[str, object] = {
        "dtype": "fp8_e4m3",
        "output_dtype": "bf16",
        "kv_form": "k_and_v",
        "ragged": True,
        "page_size": 1,
        "num_kv_heads": k.num_heads,
        "lse": False,
    }
    wrong = {name: value for name, value in wanted.items() if getattr(k, name) != value}
    if wrong:
        given = ", ".join(f"{name}={getattr(k, name)}" for name in wrong)
        raise ConfigError(
            f"arguments=aiter, but {given}: AITER's arguments do not describe this problem",
            hint=", ".join(f"{name}={value}" for name, value in wanted.items()),
        )

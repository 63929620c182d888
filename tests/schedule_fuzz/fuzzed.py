"""What the fuzzer edits: every shipped schedule in its forms, the examples, and tiny kernels.

A case is a schedule of a file, a problem, knobs to start from, and the calls that survivors are
judged by: numbers of tiles below, at and beyond the loop, with whole and cut tails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from mlagen.attention.latent.gfx950.variants import of_problem
from mlagen.attention.latent.sm_100a.dequantized import Dequantized
from mlagen.families.mha_prefill.gfx950.form import streamed_form
from mlagen.families.mha_prefill.problem import MhaProblem
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.sm_90a.operations import mla_decode
from mlagen.families.mla_decode.sm_90a.paged import Paged as HopperPages
from mlagen.families.mla_decode.sm_100a.paged import Boxes, Paged
from mlagen.families.mla_prefill.problem import MlaProblem
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.sm_90a.operations import by_queries
from mlagen.families.mla_sparse.sm_100a.listed import Gathered, Listed
from mlagen.schedules import (
    mla_decode_gfx950,
    mla_decode_sm90,
    mla_decode_sm100,
    mla_sparse_gfx950,
    mla_sparse_sm90,
    mla_sparse_sm100,
)
from mlagen.schedules.mla_prefill_v2 import form

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@dataclass(frozen=True, eq=False)
class Call:
    """One run: `shape` as the problem's kind takes it, or `tiles` (and keys that the last lacks)
    of one workgroup whose row maxima climb."""

    shape: Mapping[str, Any] = field(default_factory=dict)
    data: str = "jumps"
    tiles: int | None = None
    missing: int = 0

    def __str__(self) -> str:
        if self.tiles is not None:
            return f"N = {self.tiles}" + (f", {self.missing} keys short" if self.missing else "")
        return ", ".join(f"{k}={v}" for k, v in self.shape.items()) + f", {self.data}"


@dataclass(frozen=True, eq=False)
class Case:
    """One kernel that is edited. `solves`: its problem class, and `given` what that says to the
    table, where several problems have it."""

    name: str
    target: str
    path: Path
    function: str
    problem: Mapping[str, Any]
    calls: tuple[Call, ...]
    knobs: Mapping[str, Any] = field(default_factory=dict)
    solves: type | None = None
    given: tuple[Any, ...] = ()
    facts: Callable[[Any, Mapping[str, Any]], Any] | None = None  # of a variant whose table it is
    variant: str = ""  # of its kernel, where that builds another one unless it is named
    share: float = 1.0  # of a campaign's edits, relative to other cases


def climbing(*tiles: int) -> tuple[Call, ...]:
    """One workgroup of so many tiles each, every other one with a cut tail."""
    return tuple(Call(tiles=n, missing=17 if n % 2 else 0) for n in tiles)


def _shipped(
    name: str, function: str, problem: Mapping[str, Any], *calls: Call, **more: Any
) -> Case:
    nvidia = {"sm90": "sm_90a", "m100": "sm_100a"}  # by the end of its name
    target = nvidia.get(function[-4:], "gfx950")
    return Case(name, target, ROOT / f"schedules/{function}.py", function, problem, calls, **more)


def _streamed(name: str, problem: Mapping[str, Any], *calls: Call, **more: Any) -> Case:
    """The table that MLA prefill and MHA prefill in fp8 have."""
    path = ROOT / "schedules/tables/streamed_prefill.py"
    more = {"solves": MlaProblem, "given": ((128,), form), **more}
    return Case(name, "gfx950", path, "streamed_prefill", problem, calls, **more)


def _shared(
    name: str, table: str, config: Any, given: tuple[Any, ...], *calls: Call, **more: Any
) -> Case:
    """A table that several kernels have, or one of two that a kernel has."""
    path = ROOT / f"schedules/tables/{table.removesuffix('_split_roles')}.py"
    more |= {"solves": type(config), "given": given}
    return Case(name, "sm_90a", path, table, config.to_fields(), calls, **more)


DENSE = (mla_decode_sm90.seesaw_knobs, mla_decode)


def _listed(**knobs: bool) -> tuple[Any, ...]:
    """What seesaw over lists takes."""
    return partial(mla_sparse_sm90.seesaw_knobs, **knobs), by_queries


def _merge(target: str, *calls: Call, **more: Any) -> Case:
    """The merge of MLA decode's parts on NVIDIA's GPUs: one table for two targets."""
    name = f"mla_decode_merge_{target.removesuffix('a').replace('_', '')}"
    path = ROOT / "schedules/mla_decode_merge_nvidia.py"
    return Case(name, target, path, name, {"num_heads": 3}, calls, **more)


def _tensor_memory(
    name: str, config: Any, rows: type, storage: type, *calls: Call, **more: Any
) -> Case:
    """The table of sm_100a: of these rows, as they are stored."""
    kernel = mla_decode_sm100 if rows is Paged else mla_sparse_sm100
    more |= {"solves": type(config), "given": (rows, storage, kernel.ptxas_13_0)}
    path = ROOT / "schedules/tables/tensor_memory.py"
    return Case(name, "sm_100a", path, "tensor_memory", config.to_fields(), calls, **more)


def _latent(name: str, kernel: Any, variant: str, config: Any, *calls: Call, **more: Any) -> Case:
    """A table of latent rows on gfx950, of a kernel's variant."""
    (made,) = (one for one in kernel.VARIANTS if one.name == variant)
    table, parts = made.table.args
    path, fields = ROOT / f"schedules/tables/{table.name}.py", config.to_fields()
    more |= {"solves": type(config), "given": (of_problem(parts, config),), "facts": made.facts}
    more |= {"variant": variant}
    return Case(name, "gfx950", path, table.name, fields, calls, **more)


def _mine(path: str, function: str, *calls: Call, **more: Any) -> Case:
    target = "sm_90a" if function.endswith("sm90") else "gfx950"
    return Case(function, target, HERE / f"schedules/{path}", function, {}, calls, **more)


def _gemm(function: str, name: str, *calls: Call, **more: Any) -> Case:
    target = {"sm90": "sm_90a", "m100": "sm_100a"}.get(function[-4:], "gfx950")
    path = ROOT / "examples/gemm_bf16.py"
    knobs = {"m_tile": 128, "n_tile": 128, **more.pop("knobs", {})}
    problem = {"output_dtype": "fp32"}
    return Case(name, target, path, function, problem, calls, knobs=knobs, **more)


def _plain_form(k: Any, s: Any) -> Any:
    return streamed_form(k)


ONE = {"num_heads": 1, "num_kv_heads": 1}
FP8 = {"dtype": "fp8_e4m3"}
TWO_SLOTS = {"k_slots": 2, "v_slots": 2}
# Sequences with so many tiles of 64 and of 128 keys: none, one key, whole and cut last tiles.
RAGGED_64 = {"lengths": [33, 256, 1, 40, 70, 33, 200, 32, 5],
             "num_keys": [0, 64, 1, 130, 192, 250, 320, 390, 700], "start_pos": 0}  # fmt: skip
RAGGED_128 = {"lengths": [33, 256, 1, 40, 70, 33, 5],
              "num_keys": [0, 128, 1, 260, 384, 500, 1000], "start_pos": 0}  # fmt: skip


def _after_keys(shape: Mapping[str, Any]) -> dict[str, Any]:
    """The same with the queries at the end of the keys, where a causal mask cuts."""
    pairs = zip(shape["lengths"], shape["num_keys"], strict=True)
    return {**shape, "start_pos": [max(0, keys - rows) for rows, keys in pairs]}


E4M3 = MlaDecodeConfig(16, dtype="fp8_e4m3", cache_dtype="fp8_e4m3")
ROPE_AWARE = MlaDecodeConfig(16, dtype="fp8_e4m3", cache_dtype="fp8_rope_aware")
V32 = MlaSparseDecodeConfig(8, rows="v32")
V32_GRAINED = MlaSparseDecodeConfig(20, rows="v32")
V32_WIDE = MlaSparseDecodeConfig(40, rows="v32")
V32_CLUSTER = MlaSparseDecodeConfig(72, rows="v32")
V32_PREFILL = MlaSparsePrefillConfig(16, rows="v32")
V32_PREFILL_WIDE = MlaSparsePrefillConfig(40, rows="v32")
KEY_PREFILL = MlaSparsePrefillConfig(40, rows="e4m3_row")
MODEL1_WIDE = MlaSparseDecodeConfig(33, rows="model1", d_qk=512, extra=True, causal=True)
# Lists of no, one and several tiles, whole and cut, one query each; then invalid and repeated rows.
LISTED = (0, 1, 64, 65, 130, 200, 320, 330)
SPARSE_PREFILL = (
    Call({"rows": len(LISTED), "topk": 330, "lengths": LISTED, "blocks": 3}, "realistic"),
    Call({"rows": 2, "topk": 260, "blocks": 1}, "late_max"),
)
SPARSE_DECODE = (
    Call({"batch": len(LISTED), "topk": 330, "lengths": LISTED}, "realistic"),
    Call({"batch": 1, "topk": 580, "splits": 3, "page_size": 8}, "late_max"),
)
# Of 64 rows of queries a tile takes three times as long: fewer lists.
SPARSE_WIDE = (
    Call({"batch": 5, "topk": 330, "lengths": (0, 65, 200, 128, 330)}, "realistic"),
    Call({"batch": 1, "topk": 450, "splits": 3, "page_size": 8}, "late_max"),
)
SPARSE_EXTRA = (
    Call({"batch": 5, "topk": 130, "lengths": (0, 65, 130, 128, 1), "extra_topk": 130,
          "extra_lengths": (130, 0, 64, 130, 0), "page_size": 8}, "realistic"),
)  # fmt: skip
# Of tiles of 32 keys, on gfx950.
LISTED_32 = (0, 1, 32, 33, 64, 100, 160, 200)
LISTED_PREFILL = (
    Call({"rows": len(LISTED_32), "topk": 200, "lengths": LISTED_32}, "realistic"),
    Call({"rows": 2, "topk": 170}, "late_max"),
)
LISTED_DECODE = (
    Call({"batch": len(LISTED_32), "topk": 200, "lengths": LISTED_32}, "realistic"),
    Call({"batch": 1, "topk": 330, "splits": 3, "page_size": 8}, "late_max"),
)
LISTED_EXTRA = (
    Call({"batch": 5, "topk": 70, "lengths": (0, 33, 70, 64, 1), "extra_topk": 70,
          "extra_lengths": (70, 0, 32, 70, 0), "page_size": 8}, "realistic"),
    Call({"batch": 1, "topk": 130, "extra_topk": 100, "splits": 3}, "late_max"),
)  # fmt: skip


def _rows(data: str, *ks: int) -> tuple[Call, ...]:
    return tuple(Call({"k": k}, data) for k in ks)


CASES: tuple[Case, ...] = (
    # ---- gfx950
    _mine("vector_add.py", "vector_add", *(Call({"tiles": n}, "randn") for n in range(1, 8)),
          share=0.4),
    _mine("fold.py", "fold", *_rows("randn", *range(8, 90, 8)), share=0.8),
    _shipped("mha_prefill_v2", "mha_prefill_v2", {**ONE, "depth": 64, "mask": "null"},
             *climbing(*range(14)), share=1.5),
    _shipped("mha_prefill_v2 causal", "mha_prefill_v2", {**ONE, "depth": 128, "mask": "causal"},
             *climbing(*range(9)), Call({"seq_len": 300, "num_keys": 300}), knobs=TWO_SLOTS),
    _shipped("mha_prefill_v2 paged", "mha_prefill_v2",
             {"num_heads": 2, "num_kv_heads": 1, "depth": 64, "mask": "sliding_window_causal[150]",
              "ragged": True, "page_size": 16, "sink": True, "lse": True},
             Call(_after_keys(RAGGED_64)), Call(_after_keys(RAGGED_64), "realistic"),
             knobs=TWO_SLOTS),
    _streamed("mha_prefill_v2 fp8", {**ONE, **FP8, "mask": "null"},
             *climbing(*range(9)), solves=MhaProblem,
             given=((64,), _plain_form)),
    _streamed("mla_prefill_v2 bf16", {**ONE, "mask": "null"},
             *climbing(*range(8))),
    _streamed("mla_prefill_v2 fp8", {**ONE, **FP8, "mask": "causal"},
             *climbing(*range(10)), Call({"seq_len": 300, "num_keys": 300})),
    _streamed("mla_prefill_v2 paged",
             {"num_heads": 2, "num_kv_heads": 1, **FP8, "ragged": True, "page_size": 64,
              "kv_form": "latent", "lse": True},
             Call(_after_keys(RAGGED_128)), Call(_after_keys(RAGGED_128), "realistic")),
    _streamed("mla_prefill_v2 persistent",
             {"num_heads": 2, "num_kv_heads": 1, **FP8, "ragged": True, "mask": "null",
              "lse": True},
             Call(RAGGED_128), Call(RAGGED_128, "realistic"),
             knobs={"grid": "persistent"}),
    _shipped("mla_prefill_reduce", "mla_prefill_reduce", {"num_heads": 3, "lse": True},
             *(Call({"partials": list(range(9, 0, -1)), "rows": [16, 1, 7, 16, 2, 5, 16, 3, 9]},
                    data) for data in ("realistic", "randn")), share=0.8),
    _latent("mla_decode_gfx950", mla_decode_gfx950, "bf16", MlaDecodeConfig(16),
            Call({"lengths": (1, 33, 64, 97, 130, 192, 300)}, "late_max"),
            Call({"lengths": (0, 65, 200, 290)}, "realistic"), share=0.6),
    _latent("mla_decode_gfx950 several", mla_decode_gfx950, "bf16", MlaDecodeConfig(16),
            Call({"lengths": (97, 0, 1, 290, 64, 33), "blocks": 2}, "late_max"),
            Call({"lengths": (0, 65, 290, 200), "blocks": 1}, "realistic"),
            knobs={"persistent": 1}, share=0.4),
    _latent("mla_decode_gfx950 aiter", mla_decode_gfx950, "bf16", MlaDecodeConfig(16, q_len=2),
            Call({"lengths": (97, 0, 1, 290, 64, 33), "blocks": 2}, "late_max"),
            Call({"lengths": (65, 290), "blocks": 2, "split_keys": 64}, "realistic"),
            knobs={"persistent": 1, "arguments": "aiter"}, share=0.4),
    _latent("mla_decode_gfx950 wide", mla_decode_gfx950, "bf16_rows_32", MlaDecodeConfig(65),
            Call({"lengths": (1, 33, 64, 97, 130)}, "late_max"),
            Call({"lengths": (0, 200, 290)}, "realistic"), share=0.6),
    _latent("mla_decode_gfx950 e4m3", mla_decode_gfx950, "kv_fp8", E4M3,
            Call({"lengths": (1, 64, 65, 130, 200, 300)}, "late_max"),
            Call({"lengths": (0, 65, 200, 410)}, "realistic"), share=0.6),
    _latent("mla_decode_gfx950 wide e4m3", mla_decode_gfx950, "kv_fp8_rows_32",
            replace(E4M3, num_heads=65),
            Call({"lengths": (1, 64, 65, 200)}, "late_max"),
            Call({"lengths": (0, 410)}, "realistic"), share=0.4),
    _latent("mla_decode_gfx950 rope-aware", mla_decode_gfx950, "kv_fp8", ROPE_AWARE,
            Call({"lengths": (1, 64, 65, 130, 200, 300)}, "late_max"),
            Call({"lengths": (0, 65, 200, 410)}, "realistic"), share=0.4),
    _latent("mla_decode_gfx950 wide rope-aware", mla_decode_gfx950, "kv_fp8_rows_32",
            replace(ROPE_AWARE, num_heads=65),
            Call({"lengths": (1, 64, 65, 200)}, "late_max"), share=0.3),
    _latent("mla_decode_gfx950 fp8", mla_decode_gfx950, "qkv_fp8", replace(E4M3, compute="fp8"),
            Call({"lengths": (1, 64, 65, 130, 200, 300)}, "late_max"),
            Call({"lengths": (0, 65, 200, 410)}, "realistic"), share=0.4),
    _latent("mla_decode_gfx950 wide fp8", mla_decode_gfx950, "qkv_fp8_rows_32",
            replace(E4M3, num_heads=65, compute="fp8"),
            Call({"lengths": (1, 64, 65, 200)}, "late_max"), share=0.3),
    _shipped("mla_decode_merge_gfx950", "mla_decode_merge_gfx950", {"num_heads": 3},
             Call({"partials": (2, 4, 7, 11, 25)}, "realistic"), share=0.3),
    _latent("mla_sparse_prefill_gfx950", mla_sparse_gfx950, "bf16",
            MlaSparsePrefillConfig(16), *LISTED_PREFILL, share=0.4),
    _latent("mla_sparse_decode_gfx950", mla_sparse_gfx950, "bf16",
            MlaSparseDecodeConfig(16, extra=True, causal=True), *LISTED_EXTRA, share=0.4),
    _latent("mla_sparse_prefill_gfx950 wide", mla_sparse_gfx950, "bf16_rows_32",
            MlaSparsePrefillConfig(65), *LISTED_PREFILL, share=0.4),
    _latent("mla_sparse_decode_gfx950 wide", mla_sparse_gfx950, "bf16_rows_32",
            MlaSparseDecodeConfig(65), *LISTED_DECODE, share=0.4),
    _latent("mla_sparse_prefill_gfx950 e4m3", mla_sparse_gfx950, "kv_fp8",
            MlaSparsePrefillConfig(16, rows="e4m3_row"),
            *LISTED_PREFILL, share=0.4),
    _latent("mla_sparse_decode_gfx950 v32", mla_sparse_gfx950, "kv_fp8",
            MlaSparseDecodeConfig(16, rows="v32", causal=True), *LISTED_DECODE, share=0.4),
    _latent("mla_sparse_decode_gfx950 v41", mla_sparse_gfx950, "kv_fp8",
            MlaSparseDecodeConfig(16, rows="v41", d_qk=512), *LISTED_DECODE, share=0.4),
    _gemm("gemm_bf16", "gemm_bf16",
          *(Call({"m": 128, "n": 128, "k": k}, data)
            for k, data in ((64, "late"), (72, "late"), (128, "randn"), (200, "late"),
                            (320, "realistic"), (384, "randn"), (456, "late")))),
    # ---- Hopper
    _mine("fold.py", "fold_sm90", *_rows("randn", 0, 32, 64, 96, 128, 192, 256), share=0.6),
    _gemm("gemm_bf16_sm90", "gemm_bf16_sm90",
          *(Call({"m": 128, "n": 128, "k": k}, "late") for k in (64, 136, 384, 648))),
    _gemm("gemm_bf16_sm90", "gemm_bf16_sm90 cp.async",
          *(Call({"m": 128, "n": 128, "k": k}, "late") for k in (64, 136, 384)),
          knobs={"feed": "cp.async", "stages": 2}, share=0.6),
    _merge("sm_90a",
             Call({"keys": (65, 256)}), Call({"keys": (64 * 7, 64 * 11, 30)}),
             Call({"keys": (64 * 25,)}), share=0.6),
    _shared("mla_decode_sm90", "seesaw", MlaDecodeConfig(16), DENSE,
            Call({"lengths": (0, 1, 65, 130, 200, 320)}, "realistic"),
            Call({"lengths": (449,)}, "randn"), variant="seesaw", share=1.2),
    _shared("mla_decode_sm90 few rows", "swap_ab", MlaDecodeConfig(16), (HopperPages,),
            Call({"lengths": (0, 1, 65, 130, 200, 320)}, "realistic"),
            Call({"lengths": (449,)}, "randn")),
    _shared("mla_decode_sm90 persistent", "seesaw", MlaDecodeConfig(16), DENSE,
            Call({"lengths": (320, 250, 66, 64, 1, 0, 0)}, "realistic"),
            knobs={"persistent": 1}, share=0.8),
    _shared("mla_decode_sm90 e4m3", "seesaw", MlaDecodeConfig(16, cache_dtype="fp8_e4m3"), DENSE,
            Call({"lengths": (0, 1, 65, 130, 200, 320)}, "realistic"), variant="seesaw",
            share=0.8),
    _shared("mla_decode_sm90 few rows e4m3", "swap_ab",
            MlaDecodeConfig(16, cache_dtype="fp8_e4m3"), (HopperPages,),
            Call({"lengths": (0, 1, 65, 130, 200, 320)}, "realistic"), variant="swap_ab",
            share=0.6),
    _shared("mla_decode_sm90 few rows in registers", "swap_ab_split_roles",
            MlaDecodeConfig(16, cache_dtype="fp8_e4m3"), (HopperPages,),
            Call({"lengths": (0, 1, 65, 130, 200, 320)}, "realistic"), share=0.6),
    _shared("mla_decode_sm90 few rows fp8", "swap_ab",
            MlaDecodeConfig(32, **FP8, cache_dtype="fp8_e4m3", compute="fp8"), (HopperPages,),
            Call({"lengths": (0, 1, 65, 130, 200, 320)}, "realistic"), share=0.6),
    _shared("mla_decode_sm90 few rows rope-aware", "swap_ab_split_roles",
            MlaDecodeConfig(16, **FP8, cache_dtype="fp8_rope_aware"), (HopperPages,),
            Call({"lengths": (0, 1, 65, 130, 200, 320)}, "realistic"), share=0.4),
    _shared("mla_decode_sm90 fp8", "seesaw_qkv_fp8",
            MlaDecodeConfig(64, **FP8, cache_dtype="fp8_e4m3", compute="fp8"), (),
            Call({"lengths": (0, 1, 65, 130, 200, 320)}, "realistic"), share=0.4),
    _shared("mla_decode_sm90 rows", "seesaw", MlaDecodeConfig(8, page_size=1), DENSE,
            Call({"lengths": (0, 1, 65, 130, 200, 320)}, "realistic"), variant="seesaw",
            share=0.6),
    _shared("mla_decode_sm90 few single rows", "swap_ab", MlaDecodeConfig(8, page_size=1),
            (HopperPages,), Call({"lengths": (0, 1, 65, 130, 200, 320)}, "realistic"),
            share=0.6),
    _gemm("gemm_bf16_sm100", "gemm_bf16_sm100",
          *(Call({"m": 128, "n": 128, "k": k}, "late") for k in (64, 136, 384)), share=0.6),
    _tensor_memory("mla_decode_sm100", MlaDecodeConfig(16), Paged, Boxes,
                   Call({"lengths": (0, 1, 65, 130, 200, 320)}, "realistic"),
                   Call({"lengths": (449,), "split_keys": 256}, "late_max")),
    _tensor_memory("mla_decode_sm100 rows", MlaDecodeConfig(8, page_size=1, q_len=2),
                   Paged, Boxes, Call({"lengths": (0, 1, 65, 130, 200, 320)}, "realistic"),
                   share=0.6),
    _tensor_memory("mla_decode_sm100 fed",
                   MlaDecodeConfig(8, page_size=16, **FP8, cache_dtype="fp8_rope_aware"),
                   Paged, Dequantized,
                   Call({"lengths": (0, 1, 65, 130, 200, 320)}, "realistic"), share=0.5),
    _tensor_memory("mla_decode_sm100 fp8",
                   MlaDecodeConfig(16, **FP8, cache_dtype="fp8_e4m3", compute="fp8"),
                   Paged, Boxes, Call({"lengths": (0, 1, 65, 200, 449)}, "realistic"),
                   share=0.3),
    _tensor_memory("mla_decode_sm100 pair", MlaDecodeConfig(72), Paged, Boxes,
                   Call({"lengths": (0, 1, 65, 130, 200, 320)}, "realistic"),
                   Call({"lengths": (449,), "split_keys": 256}, "late_max")),
    _tensor_memory("mla_decode_sm100 pair fed",
                   MlaDecodeConfig(72, page_size=16, **FP8, cache_dtype="fp8_rope_aware"),
                   Paged, Dequantized,
                   Call({"lengths": (0, 1, 65, 130, 200, 320)}, "realistic"), share=0.5),
    _tensor_memory("mla_decode_sm100 items", MlaDecodeConfig(16), Paged, Boxes,
                   Call({"lengths": (0, 1, 65, 130, 200, 320, 5), "blocks": 2}, "realistic"),
                   knobs={"persistent": 1}, share=0.4),
    _tensor_memory("mla_decode_sm100 items of a pair", MlaDecodeConfig(72), Paged, Boxes,
                   Call({"lengths": (0, 1, 65, 130, 200, 320, 5), "blocks": 2}, "realistic"),
                   knobs={"persistent": 1}, share=0.4),
    _merge("sm_100a",
             Call({"partials": (2, 4, 7, 11, 25)}, "realistic"),
             Call({"partials": (2, 7)}, "unseen"), share=0.4),
    _shared("mla_sparse_prefill_sm90 heads", "seesaw", MlaSparsePrefillConfig(40),
            _listed(), *SPARSE_PREFILL, share=0.8),
    _shared("mla_sparse_prefill_sm90 keys", "swap_ab_gathered", MlaSparsePrefillConfig(8),
            (), *SPARSE_PREFILL, share=0.8),
    _shared("mla_sparse_prefill_sm90 held", "swap_ab_k_in_registers", V32_PREFILL,
            (True,), *SPARSE_PREFILL, share=0.4),
    _shared("mla_sparse_prefill_sm90 held by key", "swap_ab_k_in_registers",
            MlaSparsePrefillConfig(8, rows="e4m3_row", **FP8), (), *SPARSE_PREFILL,
            share=0.3),
    _shared("mla_sparse_prefill_sm90 grained", "swap_ab_gathered",
            replace(V32_PREFILL, num_heads=20), (True,), *SPARSE_PREFILL, share=0.3),
    _shared("mla_sparse_prefill_sm90 fed", "seesaw", V32_PREFILL_WIDE,
            _listed(grained=True), *SPARSE_PREFILL,
            share=0.3),
    _shared("mla_sparse_prefill_sm90 fed by key", "seesaw", KEY_PREFILL,
            _listed(), *SPARSE_PREFILL, share=0.3),
    _tensor_memory("mla_sparse_prefill_sm100 block", MlaSparsePrefillConfig(40),
                   Listed, Gathered, *SPARSE_PREFILL),
    _tensor_memory("mla_sparse_prefill_sm100 pair", MlaSparsePrefillConfig(72),
                   Listed, Gathered, *SPARSE_PREFILL),
    _tensor_memory("mla_sparse_prefill_sm100 block v32", MlaSparsePrefillConfig(40, rows="v32"),
                   Listed, Dequantized, *SPARSE_PREFILL, share=0.5),
    _tensor_memory("mla_sparse_prefill_sm100 pair e4m3",
                   MlaSparsePrefillConfig(72, rows="e4m3_row", **FP8),
                   Listed, Dequantized, *SPARSE_PREFILL, share=0.5),
    _tensor_memory("mla_sparse_prefill_sm100 block fp8",
                   MlaSparsePrefillConfig(40, rows="e4m3_row", **FP8, compute="fp8"),
                   Listed, Gathered, *SPARSE_PREFILL, share=0.5),
    _tensor_memory("mla_sparse_prefill_sm100 pair fp8",
                   MlaSparsePrefillConfig(72, rows="e4m3", **FP8, compute="fp8"),
                   Listed, Gathered, *SPARSE_PREFILL, share=0.5),
    _tensor_memory("mla_sparse_decode_sm100 block",
                   MlaSparseDecodeConfig(40, extra=True, causal=True), Listed, Gathered,
                   *SPARSE_EXTRA, SPARSE_WIDE[1], share=0.5),
    _tensor_memory("mla_sparse_decode_sm100 pair",
                   MlaSparseDecodeConfig(72, extra=True, causal=True), Listed, Gathered,
                   *SPARSE_EXTRA, SPARSE_WIDE[1], share=0.5),
    _tensor_memory("mla_sparse_decode_sm100 block v32", MlaSparseDecodeConfig(40, rows="v32"),
                   Listed, Dequantized, *SPARSE_WIDE, share=0.3),
    _tensor_memory("mla_sparse_decode_sm100 pair model1",
                   MlaSparseDecodeConfig(72, rows="model1", d_qk=512, extra=True),
                   Listed, Dequantized, *SPARSE_EXTRA, SPARSE_WIDE[1], share=0.3),
    _tensor_memory("mla_sparse_decode_sm100 pair v41",
                   MlaSparseDecodeConfig(72, rows="v41", d_qk=512, extra=True),
                   Listed, Dequantized, *SPARSE_EXTRA, SPARSE_WIDE[1], share=0.3),
    _tensor_memory("mla_sparse_decode_sm100 pair fp8",
                   MlaSparseDecodeConfig(72, rows="e4m3_row", **FP8, compute="fp8"),
                   Listed, Gathered, *SPARSE_WIDE, share=0.3),
    _shared("mla_sparse_decode_sm90 v32", "swap_ab_gathered", V32,
            (), *SPARSE_DECODE, variant="swap_ab", share=0.4),
    _shared("mla_sparse_decode_sm90 held", "swap_ab_k_in_registers", V32,
            (True,), *SPARSE_DECODE, share=0.4),
    _shared("mla_sparse_decode_sm90 held in parts", "swap_ab_k_in_registers",
            replace(MODEL1_WIDE, num_heads=16, causal=False), (), *SPARSE_EXTRA, share=0.4),
    _shared("mla_sparse_decode_sm90 grained", "swap_ab_gathered", V32_GRAINED,
            (True,), *SPARSE_DECODE, variant="swap_ab_grains", share=0.3),
    _shared("mla_sparse_decode_sm90 fed", "seesaw", V32_WIDE,
            _listed(grained=True), *SPARSE_WIDE, share=0.3),
    _shared("mla_sparse_decode_sm90 fed twice", "seesaw", MODEL1_WIDE,
            _listed(), *SPARSE_EXTRA, share=0.3),
    _shared("mla_sparse_decode_sm90 cluster", "seesaw", V32_CLUSTER,
            _listed(grained=True), *SPARSE_WIDE, share=0.4),
    _shared("mla_sparse_decode_sm90 cluster causal", "seesaw",
            replace(V32_CLUSTER, causal=True),
            _listed(grained=True), *SPARSE_WIDE, share=0.3),
)  # fmt: skip


def named(name: str) -> Case:
    """The case of that name."""
    return next(case for case in CASES if case.name == name)

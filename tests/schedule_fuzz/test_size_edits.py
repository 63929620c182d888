"""Declarations with less than operations touch, by hand: each is refused by its line."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hopper_texts
import judge
import pytest
from fuzzed import named

from mlagen.codegen.target import schedule_of
from mlagen.errors import MlagenError

FEW = "mla_decode_sm90 few rows"
FEW_E4M3, FEW_FP8 = f"{FEW} e4m3", f"{FEW} fp8"
# (case, fields that are changed, what is written, what instead, what the error says)
LESS: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("mla_decode_gfx950 rope-aware", {}, ", extra=storage.scale_bytes", "",
     "ring 'KV' has 0 extra, operations touch exactly 1024"),
    ("mla_decode_gfx950 rope-aware", {}, "=storage.scale_bytes", "=storage.scale_bytes // 2",
     "ring 'KV' has 512 extra"),
    ("mla_decode_gfx950 e4m3", {}, "'O', output.registers", "'O', output.registers // 2",
     "the block 'O' has 64 registers, operations touch exactly 128"),
    ("mla_decode_gfx950 e4m3", {}, "*storage.staging", "('WIDE', 4, '')",
     "the block 'WIDE' has 4 registers, operations touch 8"),
    ("mha_prefill_v2", {}, "keys, row = (k.kv_block, 2 * k.depth)",
     "keys, row = (2 * k.kv_block, 2 * k.depth)", "a tile of ring 'K' has 128 rows x 128 bytes"),
    (FEW, {}, "s.smem.room('of warps', 4 * 4 * rows)", "s.smem.room('of warps', 2 * 4 * rows)",
     "room 'of warps' has 128 bytes, operations touch 256"),
    (FEW, {}, "s.smem.room('P', 64 * k.product_bytes * rows,",
     "s.smem.room('P', 64 * k.product_bytes * rows // 2,",
     "room 'P' has 1024 bytes, operations touch 2048"),
    (FEW, {}, "s.smem.tile_row('Q', columns, 'q', rows=rows)",
     "s.smem.tile_row('Q', columns, 'q', rows=rows // 2)",
     "tile 'Q0' has 8 rows, operations touch exactly 16"),
    ("mla_decode_merge_sm90", {}, "16 * k.d_v // 2 * 4", "16 * k.d_v // 2 * 2",
     "room 'sums of warps' has 8192 bytes, operations touch 16384"),
    ("mla_decode_merge_sm90", {"sink": True}, "s.smem.room('factors', 16 * 4)",
     "s.smem.room('factors', 16)", "room 'factors' has 16 bytes, operations touch 64"),
    ("mla_decode_merge_sm90", {}, "splits * columns", "splits * columns - 1",
     "the block 'taken' has 31 registers, operations touch exactly 32"),
    ("mla_decode_sm100", {}, "2 * 4 * softmax.threads", "4 * softmax.threads",
     "room 'of warps' has 512 bytes, operations touch 1024"),
    ("mla_decode_sm100", {}, "s.columns('S', 32,", "s.columns('S', 16,",
     "columns 'S' has 16 columns, operations touch exactly 32"),
    ("mla_decode_sm100", {}, "s.region('O', k.d_v // 2,", "s.region('O', k.d_v // 4,",
     "region 'O' has 128 columns, operations touch exactly 256"),
    ("mla_decode_sm100", {}, "rows=lines,", "rows=32 if name == 'Q' else lines,",
     "tile 'Q0' has 32 rows, operations touch exactly 64"),
    ("mla_decode_sm100", {}, "rows=lines,", "rows=32 if name == 'P' else lines,",
     "tile 'P0' has 32 rows, operations touch exactly 64"),
    ("mla_decode_sm100", {}, "s.named('p', '.b32', 8 * k.product_bytes", "s.named('p', '.b32', 8",
     "the block 'p' has 8 registers, operations touch exactly 16"),
    ("mla_decode_sm100", {}, "producer_threads=softmax.threads, ", "",
     "pipeline 'weights' is declared to be filled by TMA"),
    ("gemm_bf16", {}, "tile.m * tile.n // 512", "tile.m * tile.n // 1024",
     "the block 'C' has 16 registers, operations touch exactly 32"),
    ("gemm_bf16_sm90", {}, "rows=tile.n,", "rows=tile.n // 2,",
     "tile 'B' has 64 rows, operations touch exactly 128"),
    ("gemm_bf16_sm100", {}, "s.region('C', tile.n,", "s.region('C', tile.n // 2,",
     "region 'C' has 64 columns, operations touch exactly 128"),
]  # fmt: skip


def edited(
    name: str, fields: dict[str, Any], old: str, new: str, folder: Path
) -> tuple[Any, Any, int]:
    """The case's schedule with `new` for `old`, the case, and the line that has it."""
    case = named(name)
    case = replace(case, name=f"{name} {fields}", problem={**case.problem, **fields})
    base = judge.survey(case, folder)  # once a process, in the folder of the first
    source = base.source
    at = source.index(old)
    line = source[:at].count("\n") + 1
    changed = source[:at] + new + source[at + len(old) :]
    return judge._function(case, base.folder, changed), case, line


@pytest.mark.parametrize(("name", "fields", "old", "new", "says"), LESS)
def test_less_is_refused_by_its_line(
    name: str, fields: dict[str, Any], old: str, new: str, says: str, tmp_path: Path
) -> None:
    function, case, line = edited(name, fields, old, new, tmp_path)
    with pytest.raises(MlagenError) as caught:
        schedule_of(function, judge._problem(case, function), case.knobs)
    assert says in str(caught.value)
    place = re.match(r"[\w.-]+/(\w+\.py):(\d+): ", str(caught.value))
    assert place is not None and place[1] == case.path.name
    assert abs(int(place[2]) - line) <= 2  # of a ring that several lines declare, the first


# (case, what is written, what instead, what the error says): what a table tells its parts.
TOLD: list[tuple[str, str, str, str]] = [
    (FEW, "rows_in_eights(k)", "rows_in_eights(k) // 2",
     "products have 8 query rows, a block 16"),
    (FEW, "128 // k.product_bytes", "128 // k.product_bytes - 1",
     "tiles of queries of 63 columns, 2 bytes each"),
    (FEW, "StoredKeys(kernel, pages, width,", "StoredKeys(kernel, pages, 2 * width,",
     "tiles of keys of 128 columns, 2 bytes each"),
    (FEW, "k.dequantized", "k.dequantized - 8",
     "role 'feeder' makes bf16 of e4m3 rows; rows are bf16"),
    (FEW_FP8, "k.dequantized", "not k.dequantized",
     "role 'feeder' makes bf16 of e4m3 rows; rows are fp8_e4m3, products of fp8"),
    (FEW_E4M3, "k.dequantized", "not k.dequantized",
     "tiles of keys of 64 columns, 1 bytes each"),
    ("mla_sparse_prefill_sm90 grained", "query_rows(k, stored)", "query_rows(k, stored) // 2",
     "products have 16 query rows, a block 20"),
    ("mla_decode_sm90 rows", "d = operations(k, s, left, right, feeder, knobs)",
     "d = operations(k, s, left, right, feeder, type(knobs)(2, 2, knobs.refill, 1))",
     "ahead=1 with page_size=1"),
    ("mla_decode_sm90 fp8", "d.load_values(i + 1, left)", "d.load_values(i + 1, right)",
     "load_values(i+1) is for role right, not for left"),
    ("mla_decode_sm90 fp8", "d.rescale(i, d.left, left)", "d.rescale(i, d.left, right)",
     "is for role right, not for left"),
    ("mla_decode_sm90 few single rows", "k.compute == 'fp8'", "k.compute != 'fp8'",
     "products of fp8; the problem's are of compute=bf16"),
    ("mla_sparse_decode_sm90 held", "bulk=rows_by == 'either'", "bulk=False",
     "as the argument bulk says, which the kernel does not have"),
    ("mla_decode_merge_sm90", "slot_rows=BLOCK_ROWS", "slot_rows=2 * BLOCK_ROWS",
     "slots of slot_rows=128 query rows built in"),
    ("mla_decode_merge_sm100", "slot_rows=0", "slot_rows=-1",
     "slots of slot_rows=-1 query rows built in"),
    ("mla_sparse_decode_sm90 held in parts",
     "late = stored.scales != 'none' and stored.scales_at is None", "late = False",
     "takes %place0 (rows of the next tile that this thread fetches) of look_ahead(i+1)"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "says"), TOLD)
def test_parts_refuse_what_does_not_fit(
    name: str, old: str, new: str, says: str, tmp_path: Path
) -> None:
    function, case, _ = edited(name, {}, old, new, tmp_path)
    with pytest.raises(MlagenError) as caught:
        judge._built(case, function, dict(case.knobs))
    assert says in str(caught.value) and f"{case.path.name}:" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (FEW, "s.smem.room('of warps', 4 * 4 * rows)", "s.smem.room('of warps', 8 * 4 * rows)"),
        (FEW, "rows_in_eights(k)", "rows_in_eights(k) * 2"),
        ("mla_decode_sm100", "budget.o,", "64,"),
        ("mla_decode_merge_sm90", "splits, columns = (4,", "splits, columns = (2,"),
        ("mla_decode_merge_sm90", "slot_rows=BLOCK_ROWS", "slot_rows=0"),
    ],
)
def test_what_may_be_chosen_stays_right(name: str, old: str, new: str, tmp_path: Path) -> None:
    """More room or rows than are touched, and counts that templates follow."""
    function, case, _ = edited(name, {}, old, new, tmp_path)
    made = judge._built(case, function, dict(case.knobs))
    trials = judge.prepare(named(name), tmp_path / "whole").trials
    assert not hopper_texts.wrong(trials[:1], made, str)


# Where operations state nothing, as in kernels of users, what printed lines say is looked at.
UNSTATED: list[tuple[str, str, str, str]] = [
    ("mla_decode_sm100", "s.columns('S', 32,", "s.columns('S', 16,",
     "touches columns 256 to 287 of tensor memory, 'S' has 256 to 271"),
    ("mla_decode_sm100", "s.region('O', k.d_v // 2,", "s.region('O', k.d_v // 4,",
     "touches columns 128 to 255 of tensor memory, and is of 'O' (0 to 127)"),
    ("mla_decode_sm100", "rows=lines,", "rows=32 if name == 'P' else lines,",
     "reads 64 rows of 'P0' through a matrix descriptor, of which 32 lie behind its end"),
    (FEW, "s.smem.tile_row('Q', columns, 'q', rows=rows)",
     "s.smem.tile_row('Q', columns, 'q', rows=rows // 2)",
     "reads 16 rows of 'Q0' through a matrix descriptor, of which 8 lie behind its end"),
    (FEW, "s.smem.room('P', 64 * k.product_bytes * rows,",
     "s.smem.room('P', 64 * k.product_bytes * rows // 2,",
     "reads 16 rows of 'P' through a matrix descriptor, of which 8 lie behind its end"),
    ("gemm_bf16_sm90", "rows=rows_of(tile, math),", "rows=2 * rows_of(tile, math),",
     "fetches boxes of 128 x 64 bf16 of 'a', 16384 bytes, into tile 'A' of 256 rows x 128 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "says"), UNSTATED)
def test_printed_lines_say_what_they_touch(
    name: str, old: str, new: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, case, _ = edited(name, {}, old, new, tmp_path)
    stated = ("mlagen.attention.latent", "mlagen.targets.nvidia.dsl.pipeline", "gemm.")
    for module in [m for n, m in sys.modules.items() if n.startswith(stated)]:
        for word in ("touched", "filled"):
            monkeypatch.setattr(module, word, lambda block, *more, **named: block, raising=False)
        monkeypatch.setattr(module, "tiles_of", lambda what, tiles, *_, **named: tiles,
                            raising=False)  # fmt: skip
    with pytest.raises(MlagenError) as caught:
        judge._built(case, function, dict(case.knobs))
    assert says in str(caught.value)


@pytest.mark.skipif(
    "MLAGEN_ACCEPTANCE" not in os.environ, reason="takes half a minute; MLAGEN_ACCEPTANCE=1 runs it"
)
def test_sums_over_columns_of_q_are_seen_by_the_sanitizer(tmp_path: Path) -> None:
    """With 16 columns for S its sums lie over Q's first ones. Products and copies are done in
    order, so nothing races; but one of them has its D over its own A."""
    edit = ("mla_decode_sm100", {}, "s.columns('S', 32,", "s.columns('S', 16,")
    operations = "mlagen.attention.latent.sm_100a.softmax"
    # What printed lines say would refuse it, too.
    lines = "mlagen.targets.nvidia.codegen.build.check_extents"
    with (
        patch(f"{operations}.touched", lambda block, *extents: block),
        patch(lines, lambda *given: ()),
    ):
        function, case, _ = edited(*edit, tmp_path)
        made = judge._built(case, function, dict(case.knobs))
    trials = judge.prepare(named("mla_decode_sm100"), tmp_path / "whole").trials
    assert "D lies over columns of A" in hopper_texts.wrong(trials[:1], made, str)

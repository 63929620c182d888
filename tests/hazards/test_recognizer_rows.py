"""Rules of LLVM's recognizer that its padding does not show: pairs of assembly, asked of both
tables.

`docs/hazards.md` has a row for each function of GCNHazardRecognizer.cpp; its rules are looked up.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from mlagen.targets.gfx950.codegen.hazards import RULES, HazardTracker
from mlagen.targets.gfx950.codegen.isa import Parser
from mlagen.targets.gfx950.codegen.pad import hazard_info
from mlagen.targets.gfx950.codegen.program import Origin

sys.path.append(str(Path(__file__).parents[1] / "binary"))
PAGE = Path(__file__).resolve().parents[2] / "docs" / "hazards.md"

_STORE = "buffer_store_dwordx4 v[4:7], v1, s[8:11], {} offen"
_SHORT = "buffer_store_dwordx2 v[4:5], v1, s[8:11], {} offen"
_HALF = "v_cvt_pk_fp8_f32 v4, v5, v6 op_sel:[0,0,1]"
_LOW = "v_cvt_pk_fp8_f32 v4, v5, v6"
_MFMA = "v_mfma_f32_16x16x32_bf16 v[4:7], v[8:11], v[12:15], 0"
# First, second, wait states by the checkers, and by the generator where its table has both.
PAIRS: tuple[tuple[str, str, int, int | None], ...] = (
    # The data of wide stores (createsVALUHazard, checkSOFFSETWindowVALUHazardsHelper).
    (_STORE.format("0"), "v_mov_b32 v5, 0", 2, 2),
    (_STORE.format("s14"), "v_mov_b32 v5, 0", 1, 1),
    (_STORE.format("m0"), "v_mov_b32 v5, 0", 1, 1),
    (_STORE.format("s14"), "v_pk_mul_f32 v[6:7], v[6:7], v[6:7]", 1, 1),
    (_STORE.format("s14"), _MFMA, 1, 1),
    (_STORE.format("s14"), "v_mov_b32 v8, 0", 0, 0),
    (_STORE.format("s14"), "v_mov_b32 v1, 0", 0, 0),
    (_STORE.format("s14"), "ds_read_b32 v5, v20", 0, 0),
    (_SHORT.format("s14"), "v_mov_b32 v5, 0", 0, 0),
    (_SHORT.format("0"), "v_mov_b32 v5, 0", 0, 0),
    ("buffer_store_dwordx3 v[4:6], v1, s[8:11], s14 offen", "v_mov_b32 v6, 0", 1, None),
    ("buffer_atomic_cmpswap_x2 v[4:7], v1, s[8:11], 0 offen", "v_mov_b32 v7, 0", 2, None),
    ("buffer_atomic_cmpswap_x2 v[4:7], v1, s[8:11], s14 offen", "v_mov_b32 v7, 0", 1, None),
    ("global_atomic_cmpswap_x2 v1, v[4:7], s[8:9]", "v_mov_b32 v7, 0", 2, None),
    ("global_store_dwordx4 v1, v[4:7], s[8:9]", "v_mov_b32 v7, 0", 2, None),
    # A result that is moved within its register (getDstSelForwardingOperand).
    (_HALF, "v_mov_b32 v9, v4", 1, 1),
    (_HALF, "v_mov_b32 v4, 0", 1, 1),
    (_HALF, "v_mov_b32 v5, 0", 0, 0),
    (_LOW, "v_mov_b32 v4, 0", 0, 0),
    (_HALF, _MFMA, 1, 1),
    ("v_cvt_sr_fp8_f32 v4, v5, v6 op_sel:[0,0,1,0]", "v_mov_b32 v9, v4", 1, None),
    ("v_cvt_sr_fp8_f32 v4, v5, v6 op_sel:[0,0,0,1]", "v_mov_b32 v9, v4", 1, None),
    ("v_cvt_sr_fp8_f32 v4, v5, v6", "v_mov_b32 v9, v4", 0, None),
    ("v_cvt_scalef32_pk_fp4_f32 v4, v5, v6, v7", "v_mov_b32 v9, v4", 1, None),
    ("v_mad_f16 v4, v5, v6, v7 op_sel:[0,0,0,1]", "v_mov_b32 v9, v4", 1, None),
    ("v_mad_f16 v4, v5, v6, v7", "v_mov_b32 v9, v4", 0, None),
    ("v_add_u16_sdwa v4, v5, v6 dst_sel:WORD_1", "v_mov_b32 v4, 0", 1, None),
    # M0 (checkReadM0Hazards) and EXEC (checkVMEMHazards).
    ("s_mov_b32 m0, s4", "buffer_load_dword v1, s[8:11], 0 offen lds", 1, 1),
    ("s_mov_b32 m0, s4", "ds_write_addtid_b32 v5", 1, None),
    ("s_mov_b32 m0, s4", "ds_read_addtid_b32 v5", 1, None),
    ("s_mov_b32 m0, s4", "ds_write_b32 v4, v5", 0, 0),
    ("v_cmpx_lt_f32 vcc, v1, v2", "buffer_load_dword v5, v1, s[8:11], 0 offen", 5, None),
    ("v_cmpx_lt_f32 vcc, v1, v2", "global_load_dword v5, v1, s[8:9]", 5, None),
    ("v_cmpx_lt_f32 vcc, v1, v2", "ds_read_b32 v5, v1", 0, None),
    # Products of f64 ahead of fused sums of f64 (checkMAIVALUHazards).
    ("v_mfma_f64_4x4x4_4b_f64 v[4:5], v[8:9], v[10:11], 0", "v_fma_f64 v[20:21], v[22:23], "
     "v[24:25], v[26:27]", 2, None),
    ("v_mfma_f64_4x4x4_4b_f64 v[4:5], v[8:9], v[10:11], 0", "v_add_f64 v[20:21], v[22:23], "
     "v[24:25]", 0, None),
)  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "asked"),
    [(first, second, asked) for first, second, _, asked in PAIRS if asked is not None],
)
def test_the_generator_pads(first: str, second: str, asked: int) -> None:
    parser = Parser({})
    made, used = (parser.line(text, Origin("", "t", 1, 1)) for text in (first, second))
    assert made is not None and used is not None
    tracker = HazardTracker()
    tracker.advance(hazard_info(made))
    assert tracker.required(hazard_info(used)) == asked


@pytest.mark.skipif(
    importlib.util.find_spec("tinygrad") is None or importlib.util.find_spec("ziglang") is None,
    reason="no assembler or no decoder (pip install 'mlagen[cpu]')",
)
def test_the_checkers_ask() -> None:
    from gfx950_assembler import assemble

    from mlagen.binary import load_code_object
    from mlagen.binary.hazards import strictest_pair

    lines = [line for first, second, _, _ in PAIRS for line in (first, second)]
    (kernel,) = load_code_object(assemble("\n".join(lines) + "\ns_endpgm")).kernels.values()
    got = []
    for number, (first, second, _, _) in enumerate(PAIRS):
        pair = kernel.instructions[2 * number], kernel.instructions[2 * number + 1]
        got.append((first, second, strictest_pair(*pair, 64)[0]))
    assert got == [(first, second, states) for first, second, states, _ in PAIRS]


def test_every_row_names_rules_that_there_are() -> None:
    from mlagen.binary.hazards import CONSUMERS, PRODUCERS

    page = PAGE.read_text(encoding="utf-8")
    table = page.split("<!-- recognizer: begin -->")[1].split("<!-- recognizer: end -->")[0]
    rows = [line.strip("| ").split(" | ") for line in table.strip().splitlines()[2:]]
    assert len({row[0] for row in rows}) == len(rows) > 30
    names = {rule.name for rule in RULES}
    classes = {*PRODUCERS, *CONSUMERS}
    for row in rows:
        function, applies, ours, theirs = row[0], row[2], row[3], row[4]
        assert re.fullmatch(r"`\w+`(, `\w+`)*", function), row
        assert applies.startswith(("yes", "no")), row
        assert set(re.findall(r"`([\w-]+)`", ours)) <= names, row
        assert set(re.findall(r"`(\w+)`", theirs)) <= classes, row
    told = {name for row in rows for name in re.findall(r"`([\w-]+)`", row[3])}
    assert told == names, "each rule of the generator's table has its function"

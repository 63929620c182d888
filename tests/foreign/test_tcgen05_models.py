"""The sums of tcgen05.mma, exact level, against two public models of a B200's.

An agreement of implementations: of a chip are only the few words that one of the models stores.
`MLAGEN_TCGEN05_DOTS` says how many sums of a set are compared, 8192 where it is not set.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tcgen05_models import MmaSim, RawWindow

sys.path.append(str(Path(__file__).parent.parent / "emulator_ptx"))
from hopper_arithmetic.inputs import InputSet
from tensor_sums import sums

from mlagen.emulator.ptx.arithmetic.dot import dot, rule_of, split
from mlagen.emulator.ptx.arithmetic.formats import FORMATS

DOTS = int(os.environ.get("MLAGEN_TCGEN05_DOTS", "8192"))
TILES = 256  # compared at a time
SETS = [
    InputSet(*kinds.split("."), seed)
    for seed, kinds in enumerate(
        ("bf16.bf16.f32", "f16.f16.f32", "f16.f16.f16", "tf32.tf32.f32", "e4m3.e4m3.f32",
         "e5m2.e5m2.f32", "e4m3.e5m2.f32", "e4m3.e4m3.f16", "e2m3.e2m3.f32", "e3m2.e3m2.f32",
         "e2m1.e2m1.f32", "e2m1.e4m3.f16", "s8.u8.s32"), 201,
    )
]  # fmt: skip
MMA_SIM = [kinds for kinds in SETS if kinds.a[:2] != "e2" and kinds.a not in ("e3m2", "s8")]
SPECIAL = {0x7FFF: 0x7FFFFFFF, 0x7C00: 0x7F800000, 0xFC00: 0xFF800000}


def differing(model, kinds, saturate=False):
    """How many sums were compared, and those that differ: A, B, C, ours, the model's."""
    compared, found = 0, []
    while compared < DOTS:
        a, b, c = kinds.tiles(compared // 512, min(TILES, (DOTS - compared + 511) // 512))
        ours = sums(kinds, a, b, c, saturate=saturate)
        theirs = model.sums(kinds, a, b, c, saturate=saturate)
        compared += ours.size
        for at in zip(*np.nonzero(ours != theirs), strict=True):
            tile, row, column = at
            found.append((a[tile, row], b[tile, column], c[at], int(ours[at]), int(theirs[at])))
    return compared, found


def nothing_raises(kinds, a, b, c):
    """Whether a zero's exponent, taken for -126, lies above those of all terms that are not."""
    one, other, total = (
        split(FORMATS[kind], words)
        for kind, words in ((kinds.a, a), (kinds.b, b), (kinds.c, np.array([c])))
    )
    powers = [np.where(t.significand == 0, -126, t.exponent) for t in (one, other, total)]
    terms = np.append(powers[0] + powers[1], powers[2])
    zero = np.append(one.significand * other.significand, total.significand) == 0
    return terms[zero].max(initial=-1000) > terms[~zero].max(initial=-1000)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", SETS, ids=lambda kinds: kinds.name)
def test_raw_window_model(kinds):
    """Of f16 by f16 into f16 this model gives f32's words for Inf and NaN."""
    model = RawWindow()
    for saturate in (False, True) if kinds.integer else (False,):
        compared, found = differing(model, kinds, saturate)
        print(f"{model.name} {kinds.name}: {len(found)} of {compared} differ")
        for a, b, c, ours, theirs in found:
            assert kinds.name == "f16.f16.f16" and SPECIAL.get(ours) == theirs, (a, b, c, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", MMA_SIM, ids=lambda kinds: kinds.name)
def test_mma_sim(kinds):
    """This model lets zeros count for the greatest exponent, as if they were 2^-126."""
    model = MmaSim()
    compared, found = differing(model, kinds)
    print(f"{model.name} {kinds.name}: {len(found)} of {compared} differ")
    other = RawWindow()
    for a, b, c, ours, theirs in found:
        assert kinds.a in ("bf16", "tf32") and nothing_raises(kinds, a, b, c), (a, b, c, theirs)
        tiles = np.zeros((1, 64, kinds.k), np.uint32), np.zeros((1, 8, kinds.k), np.uint32)
        tiles[0][0, 0], tiles[1][0, 0] = a, b
        total = np.full((1, 64, 8), c)
        assert other.sums(kinds, *tiles, total)[0, 0, 0] == ours


@pytest.mark.parametrize("kinds", SETS[:-1], ids=lambda kinds: kinds.name)
def test_sums_tell_other_windows(kinds):
    """What is drawn tells a window that is a bit wider or narrower from the right one."""
    a, b, c = kinds.tiles(0, 16)
    ours = sums(kinds, a, b, c)
    rule = rule_of("tcgen05", kinds.a, kinds.c)
    assert np.array_equal(ours, dot(rule, (kinds.a, kinds.b, kinds.c), a, b, c))
    for step in (-1, 1):
        other = replace(rule, window=rule.window + step)
        assert (ours != dot(other, (kinds.a, kinds.b, kinds.c), a, b, c)).any()


def test_words_of_a_b200():
    """All that the first model stores of a chip, but for scaled and sparse products."""
    cases = list(RawWindow().frozen())
    assert len(cases) == 51
    for name, formats, saturate, a, b, c, wanted in cases:
        kinds = InputSet(*formats, 0)
        rows, columns = np.zeros((1, 64, kinds.k), np.uint32), np.zeros((1, 8, kinds.k), np.uint32)
        rows[0, 0], columns[0, 0] = a, b
        total = np.zeros((1, 64, 8), np.uint32)
        total[0, 0, 0] = c
        found = sums(kinds, rows, columns, total, saturate=saturate)[0, 0, 0]
        assert found == wanted, (name, hex(found), hex(wanted))

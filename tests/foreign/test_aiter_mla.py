"""AITER's mla objects on the emulator: right in the mode "earliest", every finding with a verdict.

In the other modes most of them are not right, because their results hang on the time that loads
take (docs/foreign_kernels_mla.md); what the sanitizer says there must have a verdict all the same.
"""

import dataclasses
from functools import cache
from pathlib import Path

import aiter_mla
import aiter_mla_prefill
import numpy as np
import pytest
from aiter import HISTORY, object_file, objects
from aiter_mla import KERNELS, halves, launch_persistent, launch_split, problem, short_tail, whole
from mla_problem import Decode
from mla_verdicts import verdict

from mlagen.binary import KernelCode, load_code_object

CASES = [*aiter_mla.CASES, *aiter_mla_prefill.CASES]
SOME = (
    "mla_dec_stage1_bf16_a16w16_subQ16_mqa16",
    "mla_dec_stage1_bf16_a16w16_subQ128_mqa128",
    "mla_a8w8_qh16_qseqlen1_gqaratio16",
    "mla_a8w8_qh16_qseqlen1_gqaratio16_lse_ps",
    "mla_a8w8_qh32_qseqlen4_gqaratio32_ps",
    "mla_a16w16_qh64_qseqlen1_gqaratio64_cprr_v3_ps",
    "mla_pfl_qh192_vh128_m32x8_n128x1_causal0",
    "mla_pfl_qh192_vh128_m32x8_n128x1_causal1",
)
TAIL = "mla/mla_a8w8_qh32_qseqlen4_gqaratio32_ps.co"


@cache
def kernel(path: str) -> KernelCode:
    return load_code_object(object_file(path).read_bytes()).kernel()


def judged(path, outcome):
    """The verdicts of all findings; fails where one has none."""
    verdicts = [(verdict(kernel(path), finding), finding) for finding in outcome.findings]
    open_ = [str(finding) for found, finding in verdicts if found is None]
    assert not open_, open_[:5]
    return {found for found, _ in verdicts}


def test_every_object_has_a_launch():
    assert set(objects("mla")) <= {case.path for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_right_in_earliest(case):
    object_file(case.path)
    outcome = case.run("earliest", 1)
    assert outcome.right, outcome.errors
    judged(case.path, outcome)


@pytest.mark.parametrize("mode", ["latest", "random"])
@pytest.mark.parametrize(
    "case", [c for c in CASES if Path(c.path).stem in SOME], ids=lambda case: case.name
)
def test_findings_have_verdicts(case, mode):
    object_file(case.path)
    judged(case.path, case.run(mode, 2))


class OneKeyLess(Decode):
    """The same data, of which one key is not expected to count."""

    def visible(self, sequence, tokens, keys):
        mask = super().visible(sequence, tokens, keys)
        mask[:, np.array(keys) == 7] = False
        return mask


@pytest.mark.parametrize(
    "name",
    ["mla_dec_stage1_bf16_a16w16_subQ16_mqa16", "mla_a8w8_qh16_qseqlen1_gqaratio16"],
)
def test_the_bound_is_sharp(name):
    code = object_file(f"mla/{name}.co").read_bytes()
    of = problem(KERNELS[name], (150, 61), dyadic=True)
    less = OneKeyLess(**dataclasses.asdict(of))
    right, wrong = (launch_split(code, KERNELS[name], p, 2, "earliest", 1) for p in (of, less))
    assert right.right
    assert all(error.ratio > 10 for error in wrong.errors), wrong.errors


def test_short_tails():
    """AITER's pull request 2106: NaN before it; after it numbers, two columns of them wrong."""
    before, after = (
        short_tail(object_file(f"{c}/hsa/gfx950/{TAIL}", HISTORY).read_bytes(), "earliest", 1,
                   launcher="2026-03")
        for c in ("2106p", "2106")
    )  # fmt: skip
    assert before.errors[0].nans == 32 * 512  # the last token's, which alone sees the last key
    assert after.errors[0].nans == 0
    assert not after.right  # the mask's temporary v223 is also the last register of O


def test_short_tails_today():
    outcome = short_tail(object_file(TAIL).read_bytes(), "earliest", 1)
    assert outcome.right, outcome.errors


def test_a_cut_leaves_a_short_tail():
    """A part that ends less than four keys before the sequence does, and the part after it."""
    kernel_of = KERNELS[Path(TAIL).stem]
    of = problem(kernel_of, (131,))
    groups = [halves(kernel_of, of, 0, 128, 0)]
    outcome = launch_persistent(
        object_file(TAIL).read_bytes(), kernel_of, of, groups, "earliest", 1
    )
    assert outcome.right, outcome.errors


def test_page_0_is_read_behind_the_list():
    """Where the page list ends the kernels read page 0; a P of 0 does not hide a NaN there."""
    kernel_of = KERNELS[Path(TAIL).stem]
    code = object_file(TAIL).read_bytes()
    clean, poisoned = (problem(kernel_of, (5,), nan_near=nan) for nan in (False, True))
    assert 0 not in clean.pages
    run = [
        launch_persistent(code, kernel_of, p, [[whole(kernel_of, p, 0)]], "earliest", 1)
        for p in (clean, poisoned)
    ]
    assert run[0].right and run[1].errors[0].nans > 0

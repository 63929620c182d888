"""Our kernel with AITER's arguments on the arrays that AITER's objects get: by the same launcher
and oracle, whose layout and bounds know nothing of ours; and beside them, where they are there."""

from functools import cache

import pytest
from aiter import object_file
from aiter_mla import halves, launch_persistent, problem, whole
from mla_kernels import Kernel

from mlagen.codegen import build
from mlagen.families.mla_decode.problem import MlaDecodeConfig

MODES = ("latest", "earliest", "random")
KNOBS = {"persistent": 1, "arguments": "aiter"}


@cache
def ours(heads, tokens, causal=True, page_size=1):
    mask = "causal" if causal else "null"
    config = MlaDecodeConfig(heads, q_len=tokens, page_size=page_size, mask=mask)
    return build("mla_decode_gfx950", config, knobs=KNOBS).code


def kernel_of(heads, tokens, causal=True, page_size=1):
    """What AITER's launcher of today passes: the number of heads at 0x80."""
    return Kernel(
        heads, tokens, "bf16", "bf16", persistent=True, lse=True, causal=causal,
        page_size=page_size, mqa=heads,
    )  # fmt: skip


def groups_of(kernel, of, cut=0):
    """A workgroup for each sequence, or the first one's keys in two parts."""
    if not cut:
        return [[whole(kernel, of, b)] for b in range(of.sequences)]
    first, second = halves(kernel, of, 0, cut, 0)
    return [[first, *(whole(kernel, of, b) for b in range(1, of.sequences))], [second]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("heads", "tokens"), [(16, 1), (12, 3), (16, 4), (24, 2), (64, 1), (96, 1), (128, 2)]
)
def test_ours_is_right_in_every_mode(heads, tokens, mode):
    """Among pages of NaN, those behind the list and the rest of last pages included."""
    kernel = kernel_of(heads, tokens)
    of = problem(kernel, (150, 61), nan_near=True)
    for cut in (0, 64):
        outcome = launch_persistent(ours(heads, tokens), kernel, of, groups_of(kernel, of, cut),
                                    mode, 1)  # fmt: skip
        assert outcome.right, outcome.errors
        assert not outcome.findings, outcome.findings


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("page_size", [16, 64, 128])
def test_pages(page_size, causal):
    kernel = kernel_of(20, 2, causal, page_size)
    of = problem(kernel, (300, 5), nan_near=True)
    groups = groups_of(kernel, of, 128)
    outcome = launch_persistent(ours(20, 2, causal, page_size), kernel, of, groups, "latest", 1)
    assert outcome.right and not outcome.findings, outcome.errors


def test_the_launcher_of_other_heads_gets_nothing():
    """16 heads of four tokens are as many rows as 64 of one; AITER's 0x80 tells them apart."""
    kernel = kernel_of(64, 1)
    of = problem(kernel, (150,))
    outcome = launch_persistent(ours(16, 4), kernel, of, groups_of(kernel, of), "latest", 1)
    assert not outcome.findings
    assert all(error.nans for error in outcome.errors)  # all of what was there before


@pytest.mark.parametrize(
    ("name", "heads", "tokens"),
    [
        ("mla_a16w16_qh16_m16x4_n16x1_coex0_mask1_lse_ps", 16, 4),
        ("mla_a16w16_qh32_qseqlen4_gqaratio32_lse_ps", 32, 4),
        ("mla_a16w16_qh64_qseqlen1_gqaratio64_lse_v3_ps", 64, 1),
    ],
)
def test_beside_aiters_object(name, heads, tokens):
    """Both within one oracle's bounds on the same arrays; what each executes is shown with -s."""
    code = object_file(f"mla/{name}.co").read_bytes()
    theirs = Kernel(heads, tokens, "bf16", "bf16", persistent=True, lse=True,
                    mqa=None if heads == 16 else heads)  # fmt: skip
    kernel = kernel_of(heads, tokens)
    of = problem(kernel, (1030, 513))
    found = [
        launch_persistent(text, of_kernel, of, groups_of(kernel, of, 512), "earliest", 1)
        for text, of_kernel in ((code, theirs), (ours(heads, tokens), kernel))
    ]
    for who, outcome in zip(("AITER", "mlagen"), found, strict=True):
        assert outcome.right, (who, outcome.errors)
        worst = {error.output: round(error.ratio, 3) for error in outcome.errors}
        print(f"{name}, {who}: {outcome.wave_instructions} wave instructions, {worst}")

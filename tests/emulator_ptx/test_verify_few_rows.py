"""MLA decode of few query rows on Hopper, keys as rows: right by both oracles over poisoned pools,
clean, the same bits in all modes; and with its merge on arrays of the host."""

from dataclasses import replace
from unittest.mock import patch

import pytest

import mlagen
from mlagen.attention.latent.order import KEYS_AS_ROWS
from mlagen.attention.latent.sm_90a.parts import ASKS
from mlagen.codegen import build
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.rounded import rounded
from mlagen.problem.expected import compare
from mlagen.targets.nvidia.ptxas import PtxasResult
from mlagen.verify import verify

UNASSEMBLED = PtxasResult(b"", "", 0, 0, 0, 0, ())
WINDOW = "sliding_window_causal[100]"
E4M3 = {"dtype": "fp8_e4m3"}
ROPE_AWARE = {"dtype": "fp8_rope_aware", "cache_dtype": "fp8_rope_aware"}
FP8 = {"dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3", "compute": "fp8"}


def built(fields, knobs):
    """The artifact with its PTX, which is what is executed; ptxas is not asked."""
    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=UNASSEMBLED):
        return build("mla_decode_sm90", MlaDecodeConfig(**fields), knobs=knobs)


@pytest.mark.parametrize(
    ("fields", "knobs"),
    [
        ({"num_heads": 1, "page_size": 1}, {}),
        ({"num_heads": 8, "page_size": 128}, {"ahead": 2}),
        ({"num_heads": 8, "q_len": 4, "page_size": 16}, {}),
        ({"num_heads": 16}, {"boxes": 3}),
        ({"num_heads": 16, "q_len": 2, "page_size": 1}, {}),
        ({"num_heads": 5, "q_len": 3, "mask": WINDOW}, {}),
        ({"num_heads": 7, "q_len": 4, "page_size": 1, "mask": WINDOW}, {}),
        ({"num_heads": 8, "q_len": 4, "page_size": 16, **E4M3}, {}),
        ({"num_heads": 6, "num_kv_heads": 2, "page_size": 1, **E4M3}, {}),
        ({"num_heads": 32, "mask": WINDOW}, {}),
        ({"num_heads": 12, "q_len": 2, "mask": "null", "page_size": 32}, {}),
        ({"num_heads": 24, "num_kv_heads": 2, "q_len": 2}, {}),
        ({"num_heads": 32, "num_kv_heads": 4, "q_len": 2, "page_size": 1}, {}),
        ({"num_heads": 16, "cache_dtype": "fp8_e4m3"}, {"width": 64}),
        ({"num_heads": 16, "cache_dtype": "fp8_e4m3", "page_size": 16}, {"variant": "swap_ab"}),
        ({"num_heads": 24, "cache_dtype": "fp8_e4m3", **E4M3}, {"variant": "swap_ab"}),
        ({"num_heads": 16, "cache_dtype": "fp8_e4m3", "page_size": 32, **E4M3}, {}),
        ({"num_heads": 8, "q_len": 2, "cache_dtype": "fp8_e4m3", "page_size": 1}, {}),
        ({"num_heads": 8, "q_len": 4, "cache_dtype": "fp8_rope_aware", "page_size": 16}, {}),
        ({"num_heads": 24, "cache_dtype": "fp8_rope_aware", "mask": WINDOW, "page_size": 192}, {}),
        ({"num_heads": 5, "q_len": 3, "page_size": 1, "mask": WINDOW, **ROPE_AWARE}, {}),
        ({"num_heads": 8, **ROPE_AWARE}, {}),
        ({"num_heads": 32, "page_size": 192, **ROPE_AWARE, **E4M3}, {}),
        ({"num_heads": 8, "num_kv_heads": 2, "cache_dtype": "fp8_e4m3", "page_size": 16}, {}),
        ({"num_heads": 32, "cache_dtype": "fp8_e4m3", "page_size": 128, "mask": WINDOW}, {}),
        ({"num_heads": 16, **FP8}, {"slots": 4, "held": 2}),
        ({"num_heads": 8, "q_len": 4, "page_size": 16, **FP8}, {}),
        ({"num_heads": 5, "q_len": 3, "page_size": 1, "mask": WINDOW, **FP8}, {}),
        ({"num_heads": 32, "page_size": 192, "mask": "null", **FP8}, {"ahead": 2}),
        ({"num_heads": 24, "num_kv_heads": 2, "q_len": 2, "mask": WINDOW, **FP8}, {}),
    ],
    ids=str,
)
def test_forms(fields, knobs):
    report = verify(built(fields, knobs), lengths=(0, 1, 65, 260), split_keys=128)
    assert report.passed, report.facts()


@pytest.mark.parametrize(
    ("fields", "lengths", "together"),
    [
        ({"num_heads": 16}, (0, 1, 65, 700), 4),
        ({"num_heads": 8}, (1300, 70), 32),
        ({"num_heads": 5, "q_len": 3, "mask": WINDOW}, (300, 64), 2),
        ({"num_heads": 24, "num_kv_heads": 2, "page_size": 1}, (130,), 16),
        ({"num_heads": 32, "cache_dtype": "fp8_e4m3"}, (700, 3), 8),
        ({"num_heads": 16, **ROPE_AWARE}, (0, 1300, 70), 16),
        ({"num_heads": 8, "page_size": 1, **FP8}, (1300, 70), 32),
        ({"num_heads": 12, "q_len": 2, **FP8}, (0, 1, 65, 700), 4),
        ({"num_heads": 32, **FP8}, (0, 1, 65, 700), 4),
    ],
    ids=str,
)
def test_parts_put_together(fields, lengths, together):
    report = verify(built(fields, {}), lengths=lengths, together=together)
    assert report.passed, report.facts()


@pytest.mark.parametrize("asks", ["all come", "one asks"])
def test_whoever_adds_parts_up_gives_the_same_bits(asks):
    """With one question a block leaves its slice to the last one; with many it waits for it."""
    artifact = built({"num_heads": 8}, {})
    often = artifact.text.count(f"mov.u32 %asked, {ASKS};")
    assert often == 1
    count = {"all come": 10_000_000, "one asks": 1}[asks]
    text = artifact.text.replace(f"mov.u32 %asked, {ASKS};", f"mov.u32 %asked, {count};")
    made = replace(artifact, text=text)
    report = verify(made, lengths=(500, 130), together=4, modes=("latest", "random"))
    assert report.passed, report.facts()


def test_long_sequences_in_all_modes():
    report = verify(
        built({"num_heads": 16}, {}), modes=("latest", "earliest", "random"), lengths=(1000, 3)
    )
    assert report.passed, report.facts()


@pytest.mark.parametrize("planned", [{"split_keys": 128}, {"together": 4}], ids=str)
def test_split_work_is_merged(planned):
    lengths = (3, 330, 0, 65)
    inputs = mla_decode_inputs(
        MlaDecodeConfig(8, q_len=2), lengths=lengths, data="realistic", seed=1
    )
    kernel = mlagen.build("mla_decode_sm90", num_heads=8, q_len=2)
    plan = kernel.plan(lengths, device="cpu", **planned)
    out, lse = kernel(**inputs.tensors, **inputs.scales, plan=plan)
    for oracle in (exact, rounded):
        expected = oracle(inputs, splits=plan.splits, order=KEYS_AS_ROWS)
        assert compare(expected.output, out).passed
        assert compare_lse(expected.lse, lse).passed

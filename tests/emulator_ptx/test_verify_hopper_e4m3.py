"""`verify` of MLA decode with products of e4m3 on Hopper: right by both oracles, clean, and told
where it is not."""

from dataclasses import replace

import pytest
from test_verify_hopper import built

from mlagen.errors import UnsupportedError
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.verify import verify

FP8 = {"dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3", "compute": "fp8"}


def of(heads, knobs=None, **fields):
    return built("mla_decode_sm90", MlaDecodeConfig(heads, **FP8, **fields), **(knobs or {}))


both_forms = pytest.mark.parametrize("variant", ["seesaw_qkv_fp8", "swap_ab_qkv_fp8"])


@both_forms
def test_whole_and_split_sequences(variant):
    report = verify(
        of(16, {"variant": variant}), modes=("latest", "earliest", "random"),
        lengths=(3, 260, 0, 450), split_keys=192,
    )  # fmt: skip
    assert report.passed, report.facts()
    assert {c.oracle for c in report.runs[0].comparisons} >= {"exact", "exact LSE", "rounding"}


@pytest.mark.parametrize(
    "heads, fields, lengths",
    [
        (128, {}, (70, 1)),
        (40, {"q_len": 2}, (65, 2, 1, 0)),
        (16, {"q_len": 8, "mask": "null"}, (130,)),
        (12, {"mask": "sliding_window_causal[70]", "q_len": 3}, (200, 5)),
        (40, {"page_size": 192}, (300, 64)),
        (40, {"page_size": 16}, (300, 7)),
        (80, {"page_size": 32, "num_kv_heads": 2, "q_len": 2}, (130, 1)),
    ],
    ids=str,
)
def test_forms(heads, fields, lengths):
    report = verify(of(heads, **fields), lengths=lengths)
    assert report.passed, report.facts()


@both_forms
@pytest.mark.parametrize("data", ["late_max", "falling"])
def test_maxima_that_move(data, variant):
    report = verify(of(16, {"variant": variant}), lengths=(520,), data=data, modes=("latest",))
    assert report.passed, report.facts()


CHANGES = {
    "the permutation of V": ("0x6420;", "0x6240;"),
    "the bias of M": ("0fC0C00000;", "0fC0A00000;"),
    "ln 2, but for its last bits": ("0f3F317218", "0f3F318000"),
}


@pytest.mark.parametrize("what", ["the permutation of V", "ln 2, but for its last bits"])
def test_wrong_numbers_are_wrong_by_both_oracles(what):
    artifact = of(16)
    text = artifact.text.replace(*CHANGES[what])
    assert text != artifact.text
    report = verify(replace(artifact, text=text), lengths=(3, 200), modes=("latest",))
    assert not report.right and report.clean
    wrong = {c.oracle.split()[0] for c in report.runs[0].comparisons if not c.passed}
    assert wrong == {"exact", "rounding"}


@both_forms
def test_another_bias_is_wrong_by_the_oracle_that_rounds(variant):
    artifact = of(16, {"variant": variant})
    text = artifact.text.replace(*CHANGES["the bias of M"])
    assert text != artifact.text
    report = verify(replace(artifact, text=text), lengths=(3, 200), modes=("latest",))
    wrong = {c.oracle.split()[0] for c in report.runs[0].comparisons if not c.passed}
    assert wrong == {"rounding"} and report.clean


def test_a_removed_wait_is_told():
    artifact = of(16)
    lines = artifact.text.split("\n")
    waits = [n for n, line in enumerate(lines) if "wgmma.wait_group" in line]
    lines[waits[0]] = ""
    report = verify(replace(artifact, text="\n".join(lines)), lengths=(3, 260))
    assert "register-in-flight" in {finding.kind for finding in report.findings}


def test_single_rows_are_refused_by_name():
    with pytest.raises(UnsupportedError, match="compute=fp8 with page_size=1 on sm_90a") as refused:
        of(40, page_size=1)
    assert "compute=bf16" in refused.value.hint

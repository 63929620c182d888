"""`verify` of Hopper's kernels without a GPU: right, clean, and a removed wait told at its line."""

from dataclasses import replace
from unittest.mock import patch

import pytest

from mlagen.codegen import build
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.targets.nvidia.ptxas import PtxasResult
from mlagen.verify import verify

UNASSEMBLED = PtxasResult(b"", "", 0, 0, 0, 0, ())


def built(name, problem, **knobs):
    """The artifact with its PTX, which is what is executed; ptxas is not asked."""
    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=UNASSEMBLED):
        return build(name, problem, knobs=knobs)


def test_decode():
    report = verify(
        built("mla_decode_sm90", MlaDecodeConfig(16)),
        modes=("latest", "earliest", "random"), lengths=(3, 260, 0), split_keys=128,
    )  # fmt: skip
    assert report.passed, report.facts()
    assert {c.oracle for c in report.runs[0].comparisons} >= {"exact", "exact LSE", "rounding"}
    assert report.coverage is not None and report.coverage.text == "kernel.ptx"


@pytest.mark.parametrize(
    "fields",
    [
        {"num_heads": 8, "page_size": 1},
        {"num_heads": 40, "page_size": 16, "q_len": 2},
        {"num_heads": 4, "num_kv_heads": 2, "cache_dtype": "fp8_e4m3", "page_size": 32},
        {"num_heads": 16, "dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3"},
        {"num_heads": 16, "dtype": "fp8_rope_aware", "cache_dtype": "fp8_rope_aware"},
    ],
    ids=str,
)
def test_forms_of_decode(fields):
    report = verify(
        built("mla_decode_sm90", MlaDecodeConfig(**fields)), lengths=(3, 200), split_keys=128
    )
    assert report.passed, report.facts()


def test_persistent_decode():
    artifact = built("mla_decode_sm90", MlaDecodeConfig(16), persistent=1)
    report = verify(artifact, lengths=(400, 400, 400), blocks=2)
    assert report.passed, report.facts()


def test_merge():
    artifact = built("mla_decode_merge_sm90", MlaDecodeMergeConfig(20))
    report = verify(artifact, partials=(2, 7), data="unseen")
    assert report.passed, report.facts()


def test_a_removed_wait_is_told_at_the_schedules_line():
    artifact = built("mla_decode_sm90", MlaDecodeConfig(16))
    lines = artifact.text.split("\n")
    waits = [n for n, line in enumerate(lines) if "wgmma.wait_group" in line]
    lines[waits[0]] = ""
    report = verify(replace(artifact, text="\n".join(lines)), lengths=(3, 260))
    assert not report.clean
    kinds = {finding.kind for finding in report.findings}
    assert "register-in-flight" in kinds
    (first, *_) = [f for f in report.findings if f.kind == "register-in-flight"]
    assert first.at.asm_line > waits[0] and first.at.text == "kernel.ptx"
    assert "tables/swap_ab.py:" in first.render()


def test_a_wrong_number_is_wrong_by_both_oracles():
    artifact = built("mla_decode_sm90", MlaDecodeConfig(16))
    text = artifact.text.replace("0f3F317218", "0f3F318000")  # ln 2, but for its last bits
    assert text != artifact.text
    report = verify(replace(artifact, text=text), lengths=(3, 200), modes=("latest",))
    assert not report.right and report.clean

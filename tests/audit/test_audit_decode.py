"""Every form of the decode kernels builds, is proved, and passes the audit, which imports neither
the language nor the generator."""

import pytest

from mlagen.artifact import write_artifact
from mlagen.audit.ptx import audit_ptx, read_manifest
from mlagen.codegen import build
from mlagen.problem import MlaDecodeConfig, MlaDecodeMergeConfig

FORMS = (
    {"num_heads": 128, "q_len": 2},
    {"num_heads": 12, "page_size": 32, "mask": "null", "q_len": 4},
    {"num_heads": 24, "page_size": 1, "num_kv_heads": 8, "mask": "sliding_window_causal[512]"},
    {"num_heads": 40, "page_size": 192, "q_len": 8, "mask": "sliding_window_causal[512]"},
    {"num_heads": 16, "page_size": 1, "q_len": 2, "cache_dtype": "fp8_e4m3"},
    {"num_heads": 16, "q_len": 2, "cache_dtype": "fp8_rope_aware"},
    {"num_heads": 8, "page_size": 1, "dtype": "fp8_e4m3", "cache_dtype": "fp8_rope_aware"},
    {"num_heads": 16, "q_len": 5, "dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3"},
)


def audited(artifact, folder):
    write_artifact(artifact, folder)
    return audit_ptx(artifact.text, beside=read_manifest(folder / "manifest.json"))


@pytest.mark.slow
@pytest.mark.parametrize("fields", FORMS, ids=str)
def test_every_form_of_the_decode_kernel(fields, tmp_path):
    artifact = build("mla_decode_sm90", MlaDecodeConfig(**fields))
    manifest = artifact.manifest
    assert manifest.proof.status == "proved" and not manifest.resources.vgpr_spills
    assert "flash_fwd_splitkv_mla_kernel" in manifest.symbol
    report = audited(artifact, tmp_path)
    assert not report.findings, report.findings[:3]


@pytest.mark.slow
def test_choices_of_the_knobs(tmp_path):
    knobs = {"held": 1, "left_refill": "early", "ahead": 1, "evict": "first"}
    artifact = build("mla_decode_sm90", MlaDecodeConfig(128), knobs=knobs)
    assert artifact.manifest.proof.status == "proved"
    report = audited(artifact, tmp_path)
    assert not report.findings, report.findings[:3]


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{"num_heads": 128}, {"num_heads": 40, "q_len": 2}], ids=str)
def test_several_items_a_block(fields, tmp_path):
    """Of more paths than are followed: the first items of a block, in all orders of their ends."""
    artifact = build("mla_decode_sm90", MlaDecodeConfig(**fields), knobs={"persistent": 1})
    manifest = artifact.manifest
    assert manifest.proof.status == "proved" and not manifest.resources.vgpr_spills
    report = audited(artifact, tmp_path)
    assert not report.findings, report.findings[:3]


def test_the_merge_kernel(tmp_path):
    report = audited(build("mla_decode_merge_sm90", MlaDecodeMergeConfig(64)), tmp_path)
    assert not report.findings and not report.unchecked


@pytest.mark.slow
def test_a_missing_fence_is_found(tmp_path):
    """Converted rows that nobody fences before the matrix instructions read them."""
    artifact = build("mla_decode_sm90", MlaDecodeConfig(8, cache_dtype="fp8_e4m3"))
    write_artifact(artifact, tmp_path)
    broken = artifact.text.replace("fence.proxy.async.shared::cta;", "")
    report = audit_ptx(broken, beside=read_manifest(tmp_path / "manifest.json"), first=True)
    assert {finding.rule for finding in report.findings} == {"proxy-fence"}

"""The finished artifact: readable text, sources of every line, resources, reproducible bytes."""

import re

import pytest

from mlagen.codegen import build
from mlagen.families.mha_prefill.problem import MhaConfigV2

CONFIG = MhaConfigV2(num_heads=8, num_kv_heads=2)


@pytest.fixture(scope="module")
def artifact():
    return build("mha_prefill_v2", CONFIG)


def test_resources(artifact):
    resources = artifact.manifest.resources
    assert resources.vgprs <= 256 and resources.lds_bytes == 128 * 1024
    assert resources.scratch_bytes == resources.vgpr_spills == resources.sgpr_spills == 0


def test_the_listing_shows_clusters_registers_and_lds(artifact):
    text = artifact.text
    assert re.search(r";   A \(:\d+\): interleave\(qk\(i\), tail_softmax\(i-1\)", text)
    assert re.search(r";   0x00000\.\.0x03fff  K slot 0: 32x64 B sub-blocks, bit4 \^= bit8", text)
    assert re.search(r"\.set O +, \d+ +; v\d+\.\.v\d+  output accumulator", text)
    for heading in ("setup", "N = 1", "prologue", "loop, i % 4 = 0", "drain", "epilogue"):
        assert f"; ==== {heading}" in text
    assert "; ---- cluster B, i: copy(K, i+3); read(V, i-1); mask(i)" in text


def test_every_instruction_has_a_source(artifact):
    lines = artifact.text.splitlines()
    start = lines.index("mha_prefill_v2:")
    end = next(n for n, line in enumerate(lines) if line.startswith(".Lmha_prefill_v2_end"))
    known = {source.asm_line: source for source in artifact.manifest.source}
    for number in range(start + 1, end):
        line = lines[number].strip()
        if line and not line.startswith(";") and not line.endswith(":"):
            assert number + 1 in known, line
    # and a source line is what it says
    schedule = artifact.manifest.schedule_file
    assert schedule == "schedules/mha_prefill_v2.py"
    for source in known.values():
        text = lines[source.asm_line - 1]
        if "v_mfma" in text:
            assert source.template in ("mha_prefill/qk.s.j2", "mha_prefill/pv.s.j2")
            assert source.template_line > 1
            assert source.cluster in ("A", "C") and source.schedule_line > 0
        if "ds_read_b128" in text:
            assert source.operation == "read(K, i+1)" and source.cluster == "D"


def test_same_inputs_same_bytes(artifact):
    again = build("mha_prefill_v2", MhaConfigV2(num_heads=8, num_kv_heads=2))
    assert again.code == artifact.code and again.text == artifact.text
    assert again.key == artifact.key


def test_another_knob_is_another_artifact(artifact):
    other = build("mha_prefill_v2", CONFIG, knobs={"qk_pattern": "16x1:4"})
    assert other.key != artifact.key
    assert other.manifest.knobs["qk_pattern"] == "16x1:4"


@pytest.mark.parametrize("fields", [
    {"mask": "null"}, {"output_dtype": "fp32"}, {"num_heads": 6, "num_kv_heads": 3},
    {"num_heads": 1, "num_kv_heads": 1}, {"num_heads": 4, "num_kv_heads": 1},
    {"num_heads": 128, "num_kv_heads": 8}, {"num_heads": 40, "num_kv_heads": 8},
    {"rescale_threshold": 0.0}, {"depth": 64},
])  # fmt: skip
def test_other_problems_build(fields):
    config = MhaConfigV2(**({"num_heads": 8, "num_kv_heads": 2} | fields))
    assert build("mha_prefill_v2", config).manifest.proof.status == "proved"

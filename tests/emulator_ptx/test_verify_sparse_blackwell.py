"""Top-k sparse MLA prefill on Blackwell: ptxas takes it without spills, and what is executed is
right by both oracles and clean."""

import pytest

from mlagen.codegen import build
from mlagen.errors import MlagenError
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.rows import FORMATS
from mlagen.verify import verify

E4M3 = {"dtype": "fp8_e4m3", "rows": "e4m3", "compute": "fp8"}


@pytest.mark.parametrize("heads", [1, 8, 13, 40, 64, 65, 128])
@pytest.mark.parametrize("d_qk", [576, 512])
@pytest.mark.parametrize("data", ["realistic", "peaked", "diffuse", "late_max", "falling"])
@pytest.mark.parametrize("pool", [{}, {"page_size": 16, "layers": 2, "room": 32}], ids=str)
def test_prefill(heads, d_qk, data, pool):
    passed(build("mla_sparse_prefill_sm100", MlaSparsePrefillConfig(heads, d_qk=d_qk)), data, pool)


@pytest.mark.parametrize("heads", [1, 8, 13, 40, 64, 65, 128])
@pytest.mark.parametrize("d_qk", [576, 512])
@pytest.mark.parametrize("data", ["realistic", "peaked", "diffuse", "late_max", "falling"])
@pytest.mark.parametrize("pool", [{}, {"page_size": 16, "layers": 2, "room": 32}], ids=str)
@pytest.mark.parametrize("rows", ["e4m3", "e4m3_row"])
def test_products_of_e4m3(heads, d_qk, data, pool, rows):
    problem = MlaSparsePrefillConfig(heads, d_qk=d_qk, **{**E4M3, "rows": rows})
    # more than twice around the ring of keys
    passed(build("mla_sparse_prefill_sm100", problem), data, {**pool, "cache_rows": 1024}, 650)


@pytest.mark.parametrize("fields", [{}, E4M3], ids=str)
@pytest.mark.parametrize("heads", [65, 128])
def test_blocks_of_their_own(heads, fields):
    problem = MlaSparsePrefillConfig(heads, **fields)
    artifact = build("mla_sparse_prefill_sm100", problem, knobs={"ctas": 1})
    passed(artifact, "late_max", {"page_size": 8})


STORED = [
    {"rows": name, "d_qk": d_qk}
    for name, row in FORMATS.items() if name != "bf16"
    for d_qk in row.widths
]  # fmt: skip


@pytest.mark.parametrize("fields", STORED, ids=str)
@pytest.mark.parametrize("heads", [1, 40, 64, 65, 128])
@pytest.mark.parametrize("dtype", ["bf16", "fp8_e4m3"])
@pytest.mark.parametrize("data", ["realistic", "late_max"])
@pytest.mark.parametrize("pool", [{}, {"page_size": 16, "layers": 2, "room": 32}], ids=str)
def test_rows_of_e4m3(fields, heads, dtype, data, pool):
    problem = MlaSparsePrefillConfig(heads, dtype=dtype, **fields)
    passed(build("mla_sparse_prefill_sm100", problem), data, pool)


@pytest.mark.parametrize("heads", [1, 13, 64, 65, 128])
@pytest.mark.parametrize("d_qk", [576, 512])
@pytest.mark.parametrize("data", ["realistic", "late_max"])
def test_queries_of_e4m3(heads, d_qk, data):
    problem = MlaSparsePrefillConfig(heads, d_qk=d_qk, dtype="fp8_e4m3")
    passed(build("mla_sparse_prefill_sm100", problem), data, {})


@pytest.mark.parametrize("rows", ["e4m3", "v32", "rope_aware"])
def test_blocks_of_their_own_that_convert(rows):
    problem = MlaSparsePrefillConfig(128, rows=rows)
    artifact = build("mla_sparse_prefill_sm100", problem, knobs={"ctas": 1})
    passed(artifact, "late_max", {"page_size": 8})


def passed(artifact, data, pool, topk=330):
    assert artifact.manifest.resources.vgpr_spills == 0
    report = verify(
        artifact, rows=5, topk=topk, lengths=(topk, 3, 150, 0, 64), data=data, **pool
    )  # fmt: skip
    assert report.passed, report.facts()
    assert {c.oracle for run in report.runs for c in run.comparisons} >= {"exact", "rounding"}


def test_hopper_has_no_products_of_e4m3():
    with pytest.raises(MlagenError, match=r"(?s)compute=fp8 on sm_90a.*sm_100a has"):
        build("mla_sparse_prefill_sm90", MlaSparsePrefillConfig(8, **E4M3))

"""Top-k sparse MLA decode on Blackwell: ptxas takes it without spills, and what is executed is
right by both oracles and clean, whole and in parts."""

import pytest

from mlagen.codegen import build
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.rows import FORMATS
from mlagen.verify import verify

LISTS = [
    {},
    {"q_len": 3, "causal": True},
    {"q_len": 2, "extra": True},
    {"q_len": 2, "shared_list": True, "extra": True, "causal": True},
]
SIZES = [(1, 1), (13, 2), (64, 0), (64, 3), (65, 1), (128, 3), (128, 2)]  # heads, of LISTS
NATIVE = [
    {"dtype": "fp8_e4m3", "compute": "fp8", "rows": name, "d_qk": d_qk}
    for name in ("e4m3", "e4m3_row") for d_qk in (576, 512)
]  # fmt: skip
ROWS = [
    {"rows": name, "d_qk": d_qk, "dtype": dtype}
    for name, row in FORMATS.items() for d_qk in row.widths for dtype in ("bf16", "fp8_e4m3")
]  # fmt: skip


def built(fields, **knobs):
    return build("mla_sparse_decode_sm100", MlaSparseDecodeConfig(**fields), knobs=knobs)


def passed(artifact, **shape):
    assert artifact.manifest.resources.vgpr_spills == 0
    if artifact.manifest.problem["extra"]:
        shape = {"extra_topk": 70, "extra_lengths": (70, 0, 33), **shape}
    report = verify(artifact, **shape)
    assert report.passed, report.facts()
    assert {c.oracle for run in report.runs for c in run.comparisons} >= {"exact", "rounding"}


@pytest.mark.parametrize(("heads", "lists"), SIZES)
@pytest.mark.parametrize("rows", [*ROWS, *NATIVE], ids=str)
def test_decode(heads, lists, rows):
    artifact = built({"num_heads": heads, **rows, **LISTS[lists]})
    for splits in (1, 3):
        passed(artifact, batch=3, topk=330, lengths=(330, 3, 0), splits=splits, page_size=8)


@pytest.mark.parametrize("heads", [40, 128])
@pytest.mark.parametrize("rows", [{}, {"rows": "v32"}, NATIVE[0], NATIVE[2]], ids=str)
@pytest.mark.parametrize("data", ["peaked", "diffuse", "late_max", "falling"])
@pytest.mark.parametrize("pool", [{}, {"page_size": 16, "layers": 2, "room": 32}], ids=str)
def test_data_and_pools(heads, rows, data, pool):
    """Longer than the ring of keys, in parts of several tiles."""
    shape = {"batch": 2, "topk": 650, "lengths": (650, 333), "cache_rows": 1024, "splits": 2}
    passed(built({"num_heads": heads, **rows}), data=data, **shape, **pool)


@pytest.mark.parametrize("page_size", [1, 2, 64])
@pytest.mark.parametrize("heads", [64, 128])
def test_rows_of_flash_mla(heads, page_size):
    """Exponents behind the rows of pages, and lengths of both lists."""
    fields = {"num_heads": heads, "d_qk": 512, "rows": "model1", "extra": True}
    passed(
        built(fields), batch=4, topk=128, lengths=(128, 0, 1, 65), extra_topk=100,
        extra_lengths=(1, 0, 100, 64), page_size=page_size,
    )  # fmt: skip


@pytest.mark.parametrize("lists", LISTS, ids=str)
@pytest.mark.parametrize("rows", [{}, {"rows": "v32"}, {"rows": "model1", "d_qk": 512}, NATIVE[2]],
                         ids=str)  # fmt: skip
def test_blocks_of_their_own(lists, rows):
    artifact = built({"num_heads": 128, **rows, **lists}, ctas=1)
    passed(artifact, batch=3, topk=330, lengths=(330, 3, 0), splits=3, page_size=8)


@pytest.mark.parametrize("heads", [8, 72])
@pytest.mark.parametrize("rows", [{}, {"rows": "rope_aware"}, NATIVE[2]], ids=str)
def test_parts_without_keys(heads, rows):
    """As many as the longest list has tiles: of the others, and of lists that name nothing, they
    leave an LSE of -inf and no O."""
    artifact = built({"num_heads": heads, **rows})
    for pattern in ("distinct", "none"):
        passed(artifact, batch=4, topk=450, lengths=(450, 64, 1, 0), splits=8, pattern=pattern)

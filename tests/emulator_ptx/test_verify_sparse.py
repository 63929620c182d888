"""Top-k sparse MLA on Hopper in all forms: ptxas takes them without spills, and what is executed is
right by both oracles and clean."""

import pytest

from mlagen.attention.latent.facts import facts_of
from mlagen.codegen import build
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.rows import FORMATS
from mlagen.verify import verify


def built(name, problem, **knobs):
    return build(name, problem, knobs=knobs)


def passed(artifact, **shape):
    report = verify(artifact, **shape)
    assert report.passed, report.facts()
    assert {c.oracle for run in report.runs for c in run.comparisons} >= {"exact", "rounding"}


PREFILL = [
    {"num_heads": heads, "d_qk": d_qk, "rows": name}
    for name, row in FORMATS.items()
    for d_qk in row.widths for heads in (1, 8, 13, 16, 24, 32)
]  # fmt: skip


@pytest.mark.parametrize("fields", PREFILL, ids=str)
@pytest.mark.parametrize("pool", [{}, {"page_size": 16, "layers": 2, "room": 32}], ids=str)
def test_prefill_with_keys_as_rows(fields, pool):
    artifact = built("mla_sparse_prefill_sm90", MlaSparsePrefillConfig(**fields))
    passed(artifact, rows=5, topk=150, lengths=(150, 3, 150, 0, 64), **pool)


@pytest.mark.parametrize("heads", [20, 33, 64, 65, 128])
@pytest.mark.parametrize("d_qk", [576, 512])
@pytest.mark.parametrize("data", ["peaked", "diffuse", "late_max", "falling"])
def test_prefill_with_queries_as_rows(heads, d_qk, data):
    problem = MlaSparsePrefillConfig(heads, d_qk=d_qk)
    artifact = built("mla_sparse_prefill_sm90", problem, variant="seesaw")
    passed(artifact, rows=3, topk=260, lengths=(260, 0, 130), blocks=2, data=data)


DECODE = [
    {"num_heads": heads, "d_qk": row.widths[0], "rows": name, **more}
    for name, row in FORMATS.items() for heads in (1, 8, 16, 24)
    for more in (
        {},
        {"q_len": 3, "causal": True},
        {"q_len": 2, "extra": True},
        {"q_len": 2, "shared_list": True, "extra": True, "causal": True},
    )
]  # fmt: skip


@pytest.mark.parametrize("fields", DECODE, ids=str)
@pytest.mark.parametrize(("splits", "together"), [(1, 1), (3, 1), (2, 2), (8, 8)])
def test_decode(fields, splits, together):
    artifact = built("mla_sparse_decode_sm90", MlaSparseDecodeConfig(**fields))
    shape = {"extra_topk": 70, "extra_lengths": (70, 0)} if fields.get("extra") else {}
    if facts_of(artifact.manifest).together == 1:  # 24 heads over v32 rows of two lists: seesaw
        together = 1
    passed(artifact, batch=2, topk=150, lengths=(150, 3), splits=splits, together=together,
           page_size=8, **shape)  # fmt: skip


WIDE = [
    {"d_qk": d_qk, "rows": name}
    for name, row in FORMATS.items() for d_qk in row.widths
]  # fmt: skip


@pytest.mark.parametrize("heads", [40, 128])
@pytest.mark.parametrize("fields", WIDE, ids=str)
def test_all_rows_of_prefill_with_queries_as_rows(fields, heads):
    problem = MlaSparsePrefillConfig(heads, d_qk=fields["d_qk"], rows=fields["rows"])
    artifact = built("mla_sparse_prefill_sm90", problem)
    passed(artifact, rows=2, topk=330, lengths=(330, 70), page_size=16, layers=2)


QUERIES = [
    *(
        ("prefill", {"num_heads": heads, "d_qk": d_qk, "rows": name}, {})
        for name, row in FORMATS.items()
        for d_qk in row.widths for heads in (1, 13, 24, 40, 128)
    ),
    *(
        ("decode", {"num_heads": heads, "d_qk": row.widths[-1], "rows": name, "q_len": 2,
                    "extra": heads > 8, "causal": True}, {})
        for name, row in FORMATS.items() for heads in (8, 16, 32, 70)
    ),
    ("prefill", {"num_heads": 13}, {"variant": "seesaw"}),
    ("prefill", {"num_heads": 13, "rows": "v32"}, {"variant": "swap_ab"}),
]  # fmt: skip


@pytest.mark.parametrize(("which", "fields", "knobs"), QUERIES, ids=str)
def test_e4m3_queries(which, fields, knobs):
    fields = {**fields, "dtype": "fp8_e4m3"}
    if which == "prefill":
        artifact = built("mla_sparse_prefill_sm90", MlaSparsePrefillConfig(**fields), **knobs)
        passed(artifact, rows=5, topk=330, lengths=(330, 3, 150, 0, 64), blocks=2)
        return
    artifact = built("mla_sparse_decode_sm90", MlaSparseDecodeConfig(**fields), **knobs)
    shape = {"extra_topk": 70, "extra_lengths": (70, 0)} if fields["extra"] else {}
    passed(artifact, batch=2, topk=330, lengths=(330, 3), splits=3, page_size=8, **shape)


WIDE_DECODE = [
    (128, {}, 3),
    (64, {"extra": True}, 1),
    (40, {"q_len": 2, "shared_list": True, "causal": True}, 1),
    (33, {"q_len": 2, "extra": True, "causal": True}, 3),
]


@pytest.mark.parametrize("fields", WIDE, ids=str)
@pytest.mark.parametrize(("heads", "more", "splits"), WIDE_DECODE)
def test_decode_with_queries_as_rows(fields, heads, more, splits):
    problem = MlaSparseDecodeConfig(heads, d_qk=fields["d_qk"], rows=fields["rows"], **more)
    artifact = built("mla_sparse_decode_sm90", problem)
    shape = {"extra_topk": 70, "extra_lengths": (70, 0)} if more.get("extra") else {}
    passed(artifact, batch=2, topk=330, lengths=(330, 3), splits=splits, page_size=8, **shape)


@pytest.mark.parametrize("page_size", [1, 2, 64])
@pytest.mark.parametrize("heads", [64, 128])
def test_rows_of_flash_mla_with_queries_as_rows(heads, page_size):
    """Exponents behind the rows of pages, and lengths of both lists."""
    problem = MlaSparseDecodeConfig(heads, d_qk=512, rows="model1", extra=True)
    passed(
        built("mla_sparse_decode_sm90", problem), batch=4, topk=128, lengths=(128, 0, 1, 65),
        extra_topk=100, extra_lengths=(1, 0, 100, 64), splits=1, page_size=page_size,
    )  # fmt: skip


@pytest.mark.parametrize("data", ["peaked", "late_max", "falling"])
@pytest.mark.parametrize("name", ["v32", "rope_aware"])
def test_data_of_stored_rows_with_queries_as_rows(name, data):
    artifact = built("mla_sparse_decode_sm90", MlaSparseDecodeConfig(64, rows=name))
    for topk in (64, 128, 192, 400):  # tiles of less than a pass, and more
        passed(artifact, batch=1, topk=topk, splits=1, data=data)


@pytest.mark.parametrize("fields", WIDE, ids=str)
@pytest.mark.parametrize(("heads", "splits"), [(65, 1), (128, 3)])
@pytest.mark.parametrize("cluster", [1, 2])
def test_two_blocks_of_a_query(fields, heads, splits, cluster):
    """The second of them may have one head; rows are shared, or not."""
    if fields["rows"] == "bf16":
        pytest.skip("rows of bf16 are not converted")
    problem = MlaSparseDecodeConfig(
        heads, d_qk=fields["d_qk"], rows=fields["rows"], q_len=2, extra=True, causal=True
    )
    artifact = built("mla_sparse_decode_sm90", problem, cluster=cluster)
    passed(
        artifact, batch=2, topk=200, lengths=(200, 3), extra_topk=70, extra_lengths=(70, 0),
        splits=splits, page_size=8,
    )  # fmt: skip


POWERS = [
    ("prefill", {}),
    ("decode", {"q_len": 3, "causal": True}),
    ("decode", {"q_len": 2, "extra": True}),
    ("decode", {"q_len": 4, "shared_list": True, "extra": True, "causal": True}),
]


@pytest.mark.parametrize("heads", [1, 8, 16, 20, 24, 32, 40, 64, 72, 128])
@pytest.mark.parametrize("dtype", ["bf16", "fp8_e4m3"])
@pytest.mark.parametrize(("which", "more"), POWERS, ids=str)
def test_rows_with_exponents_in_them(which, more, dtype, heads):
    fields = {"d_qk": 512, "rows": "v41", "dtype": dtype, **more}
    if which == "prefill":
        artifact = built("mla_sparse_prefill_sm90", MlaSparsePrefillConfig(heads, **fields))
        passed(artifact, rows=5, topk=150, lengths=(150, 3, 150, 0, 64), page_size=16, room=16)
        return
    artifact = built("mla_sparse_decode_sm90", MlaSparseDecodeConfig(heads, **fields))
    shape = {"extra_topk": 70, "extra_lengths": (70, 0)} if more.get("extra") else {}
    passed(artifact, batch=2, topk=150, lengths=(150, 3), splits=3, page_size=8, **shape)

"""mla_sparse_prefill_gfx950, mla_sparse_decode_gfx950 and the merge with sinks, executed: heads,
widths, lists, pools, positions, parts and sinks, by both oracles; what is refused; and edits of
their text that must be found."""

import re
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from sparse_calls import given, right
from sparse_draws import EMULATED, calls, drawing, hypothesis, problems, st

from mlagen.codegen import build
from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.kernel import sparse_kernel
from mlagen.families.mla_sparse.made_up import mla_sparse_decode_inputs, mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.rows import FORMATS, ROWS
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.mutation.gfx950.mutant import assembled
from mlagen.verify import verify, verify_thoroughly

PREFILL, DECODE = "mla_sparse_prefill_gfx950", "mla_sparse_decode_gfx950"
WIDE = ("variant", "bf16_rows_32")
MERGE = "mla_decode_merge_gfx950"
CONFIGS = {
    PREFILL: MlaSparsePrefillConfig, DECODE: MlaSparseDecodeConfig, MERGE: MlaDecodeMergeConfig
}  # fmt: skip
# None, one, around a tile of 32 keys, and through the loop.
LENGTHS = (0, 1, 31, 32, 33, 64, 130, 200, 290)


@lru_cache(maxsize=32)
def _built(name, fields, knobs):
    return build(name, CONFIGS[name](**dict(fields)), knobs=dict(knobs))


def built(name, knobs=(), **fields):
    return _built(name, tuple(sorted(fields.items())), tuple(knobs))


def kernel(name, **fields):
    """With the one that merges beside it."""
    return sparse_kernel(built(name, **fields), build=lambda merge, fields: built(merge, **fields))


def check(artifact, **sizes):
    report = verify(artifact, **sizes)
    assert report.passed, report.facts()


@pytest.mark.parametrize("d_qk", [576, 512])
@pytest.mark.parametrize("heads", [1, 8, 16, 24, 40, 64, 65, 128])
def test_prefill(heads, d_qk):
    artifact = built(PREFILL, num_heads=heads, d_qk=d_qk)
    check(artifact, rows=5, topk=200, lengths=(0, 1, 33, 200, 150))


@pytest.mark.parametrize("d_qk", [576, 512])
@pytest.mark.parametrize("heads", [1, 16, 40, 128])
def test_decode(heads, d_qk):
    artifact = built(DECODE, num_heads=heads, d_qk=d_qk)
    check(artifact, batch=5, topk=200, lengths=(0, 1, 33, 200, 150), splits=2)


@pytest.mark.parametrize("data", ["realistic", "late_max", "peaked", "diffuse"])
@pytest.mark.parametrize("name", [PREFILL, DECODE])
def test_lengths(name, data):
    count = {PREFILL: "rows", DECODE: "batch"}[name]
    check(built(name, num_heads=12), data=data, topk=290, lengths=LENGTHS, **{count: len(LENGTHS)})


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("extra", [False, True])
@pytest.mark.parametrize("shared_list", [False, True])
@pytest.mark.parametrize("q_len", [1, 3, 8])
def test_new_tokens(q_len, shared_list, extra, causal):
    options = {"shared_list": shared_list, "extra": extra, "causal": causal}
    artifact = built(DECODE, num_heads=8, q_len=q_len, **options)
    more = {"extra_topk": 70, "extra_lengths": (0, 70, 33)} if extra else {}
    for splits in (1, 3):
        check(artifact, batch=3, topk=140, lengths=(140, 0, 77), splits=splits, **more)


@pytest.mark.parametrize("page_size", [1, 2, 53, 64, 192])
def test_pools(page_size):
    """Pages with room between them, and rows with some: rows that no list names are NaN."""
    rows = page_size * (1 + 600 // page_size)
    pool = {"page_size": page_size, "cache_rows": rows, "layers": 2, "room": 16}
    check(built(PREFILL, num_heads=4), rows=4, topk=150, **pool)


@pytest.mark.parametrize("band", [6, 4, 2])
@pytest.mark.parametrize("slots", [4, 2])
def test_knobs(slots, band):
    artifact = built(PREFILL, (("variant", "bf16"), ("slots", slots), ("band", band)), num_heads=16)
    check(artifact, rows=len(LENGTHS), topk=290, lengths=LENGTHS)


@pytest.mark.parametrize("band", [6, 4])
@pytest.mark.parametrize("heads", [8, 100])
def test_more_heads_a_wave(heads, band):
    """One workgroup has them all; M seldom moves, and is not the largest score."""
    artifact = built(PREFILL, (WIDE, ("band", band)), num_heads=heads)
    for data in ("realistic", "late_max"):
        check(artifact, data=data, rows=len(LENGTHS), topk=290, lengths=LENGTHS)
    artifact = built(DECODE, (WIDE, ("band", band)), num_heads=heads, causal=True)
    check(artifact, batch=2, topk=290, splits=3)


@pytest.mark.parametrize("heads", [6, 66])
@pytest.mark.parametrize("name", [PREFILL, DECODE])
def test_all_code_that_can_be_reached_is_checked(name, heads):
    report = verify_thoroughly(built(name, num_heads=heads))
    assert report.passed and not report.coverage.gaps, report.error_rows()


@pytest.mark.parametrize("heads", [1, 20, 128])
def test_merges_with_sinks(heads):
    for data in ("realistic", "unseen"):
        check(built(MERGE, num_heads=heads, sink=True), partials=(2, 3, 9, 33), data=data)


@pytest.mark.parametrize("dtype", ["bf16", "fp8_e4m3"])
@pytest.mark.parametrize("rows", ROWS)
def test_formats_of_rows(rows, dtype):
    """In decode, with all that it may have; in prefill."""
    for d_qk in FORMATS[rows].widths:
        types = {"num_heads": 8, "rows": rows, "d_qk": d_qk, "dtype": dtype}
        artifact = built(DECODE, q_len=2, extra=True, causal=True, **types)
        more = {"extra_topk": 70, "extra_lengths": (0, 70, 33), "page_size": 8, "layers": 2}
        check(artifact, batch=3, topk=140, lengths=(140, 0, 77), splits=2, **more)
        artifact = built(PREFILL, **types)
        check(artifact, rows=len(LENGTHS), topk=290, lengths=LENGTHS, page_size=8, layers=2)


@drawing(6)
@hypothesis.given(problems(), st.sampled_from(["bf16", "fp8_e4m3"]), st.data())
def test_drawn_calls(problem, dtype, data):
    """From arrays to outputs, the merge included: what is no key, and what no list names, is NaN
    or names nothing."""
    which, fields = problem
    made = kernel({"prefill": PREFILL, "decode": DECODE}[which], **{**fields, "dtype": dtype})
    drawn = data.draw(calls(made.config, EMULATED), label="call")
    step = made.prepare(**given(drawn.inputs, **drawn.given))
    step()
    empty = float(drawn.given["empty_lse"])
    lse = np.where(step.lse == empty, -np.inf, step.lse)
    assert not np.isposinf(lse).any()
    found = (step.output, lse, step.max_logits)
    right(made, drawn.inputs, found[: 2 + (which == "prefill")], step.splits)


def test_a_call_is_split_by_itself():
    """Two launches, whose outputs are those of one; the sink is the merge's then."""
    made = kernel(DECODE, num_heads=8, q_len=2)
    call = mla_sparse_decode_inputs(
        made.config, batch=2, topk=300, lengths=(300, 0), sink=[0.5] * 8, pattern="invalid"
    )
    for splits, launches in ((None, 2), (1, 1), (4, 2)):
        run = made.run(**given(call, splits=splits, empty_lse="+inf"))
        assert len(run.reports) == launches
        assert np.isposinf(run.lse[1]).all() and not run.output[1].astype(np.float32).any()
        lse = np.where(np.isposinf(run.lse), -np.inf, run.lse)
        if splits is not None:
            right(made, call, (run.output, lse), splits)


def test_nothing_is_read_for_what_names_no_row():
    """A list of nothing, over a pool of NaN: 0, -inf and -inf."""
    made = kernel(PREFILL, num_heads=4)
    call = mla_sparse_prefill_inputs(made.config, rows=2, topk=70, pattern="none")
    assert np.isnan(call.cache.astype(np.float32)).all()
    out, lse, most = made(**given(call))
    assert not out.astype(np.float32).any()
    assert np.isneginf(lse).all() and np.isneginf(most).all()


def test_products_of_e4m3_are_refused():
    with pytest.raises(ConfigError, match=f"compute=fp8: {PREFILL} has no such form"):
        built(PREFILL, num_heads=16, dtype="fp8_e4m3", rows="e4m3", compute="fp8")


def test_parts_without_a_merge_are_refused():
    alone = sparse_kernel(built(DECODE, num_heads=4))
    call = mla_sparse_decode_inputs(alone.config, batch=1, topk=140)
    with pytest.raises(ConfigError, match="splits=2: this kernel has no merge kernel beside it"):
        alone(**given(call, splits=2))


# ---- edits that must be found ---------------------------------------------------------------


def without(artifact, pattern, after, most=1):
    """The artifact without the first lines that match, from some place of its text on."""
    lines = artifact.text.split("\n")
    first = next(n for n, line in enumerate(lines) if after in line)
    found = [n for n, line in enumerate(lines, 1) if n > first and re.search(pattern, line)]
    return replace(artifact, code=assembled(artifact, dict.fromkeys(found[:most], ())))


LOOP = "loop, i % 4 = 0"


@pytest.mark.parametrize("pattern", [r"s_waitcnt vmcnt", r"s_barrier"])
def test_a_removed_wait_or_barrier_is_found(pattern):
    report = verify(without(built(PREFILL, num_heads=16), pattern, LOOP), rows=1, topk=500,
                    pattern="distinct")  # fmt: skip
    assert not report.clean, pattern


@pytest.mark.parametrize(
    ("what", "pattern", "after", "shape"),
    [
        ("a key that is none is seen", r"s_and_b32 s\[TMP\], s\[TMP\], vcc_lo", LOOP,
         {"pattern": "invalid"}),
        ("a place past the length is seen", r"s_lshr_b32 s\[TMP\], -1", "==== setup",
         {"lengths": (33,), "pattern": "distinct"}),
        ("a row that there is not is fetched", r"v_cndmask_b32 v\[T\+[23]\]", LOOP,
         {"pattern": "invalid"}),
        ("what lies between pages is left out", r"v_mad_u64_u32.*v\[T\],", LOOP,
         {"pattern": "distinct", "page_size": 8, "layers": 2}),
        ("the sink is left out", r"v_add_f32 v\[T\], v\[L\], v\[T\]", "==== epilogue",
         {"pattern": "distinct"}),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(what, pattern, after, shape):
    artifact = built(PREFILL, num_heads=16)
    changed = without(artifact, pattern, after, most=100)
    assert changed.code != artifact.code
    report = verify(changed, rows=1, topk=500, data="randn", modes=("latest",), **shape)
    assert not (report.clean and report.right), what


@pytest.mark.parametrize(
    ("what", "rows", "pattern"),
    [
        ("P is not multiplied by its key's scale", "e4m3_row", r"v_mul_f32.*v\[WIDE"),
        ("a scale of columns is left out", "v32", r"v_accvgpr_read_b32 v\[WIDE\+6\]"),
        ("half of a word is stored twice", "e4m3", r"v_cvt_scalef32_pk_bf16.*op_sel"),
        ("a row is not stored", "rope_aware", r"ds_write_b128 .* a\["),
        ("a scale is not cut out of its word", "v41", r"v_bfe_u32 v\[WIDE"),
        ("columns of an area have scales of others", "v41", r"v_and_b32 v\[WIDE\+4\], 8"),
        ("two areas have the scales of the first", "v41", r"v_add_u32 v\[WIDE\+5\], 16"),
        ("scales are not loaded", "v41", r"global_load_dwordx4 .* offset:512"),
    ],
)  # fmt: skip
def test_what_is_wrong_over_rows_of_e4m3_is_found(what, rows, pattern):
    artifact = built(PREFILL, num_heads=8, rows=rows, d_qk=FORMATS[rows].widths[0])
    changed = without(artifact, pattern, "==== setup", most=100)
    assert changed.code != artifact.code
    report = verify(changed, rows=1, topk=300, data="randn", modes=("latest",), pattern="distinct")
    assert not (report.clean and report.right), what


@pytest.mark.parametrize(
    ("what", "pattern", "shape"),
    [
        ("a key at a later position is seen", r"s_and_b32 s\[TMP\], s\[TMP\], s\[COMPARE\]", {}),
        ("the token is left out of its position", r"s_add_i32 s\[LAST\]", {}),
        ("the second list is cut like the first", r"s_cselect_b32 s\[TMP\+2\], s\[KEYS\]",
         {"extra_topk": 70}),
        ("a part begins where the first one does", r"s_lshl_b32 s\[FKEY\]", {"splits": 3}),
    ],
)  # fmt: skip
def test_what_is_wrong_in_decode_is_found(what, pattern, shape):
    artifact = built(DECODE, num_heads=8, q_len=2, extra=True, causal=True)
    changed = without(artifact, pattern, "==== setup", most=100)
    assert changed.code != artifact.code
    # Scores near zero: of a row that a position hides zeros are fetched, which others outweigh.
    shape = {"data": "diffuse", "pattern": "distinct", **shape}
    assert verify(artifact, batch=2, topk=300, modes=("latest",), **shape).right
    report = verify(changed, batch=2, topk=300, modes=("latest",), **shape)
    assert not (report.clean and report.right), what

"""MLA decode on Blackwell and its merge: ptxas takes them without spills, and what is executed is
right by both oracles and clean; what is refused; and edits of the text that must be found."""

import re
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlagen.attention.latent.facts import order_of
from mlagen.attention.latent.order import SELDOM_MOVED
from mlagen.codegen import build
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.kernel import decode_kernel
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.plan import plan_work
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.rounded import rounded
from mlagen.families.mla_decode.unit import unit_of
from mlagen.families.mla_decode.verification import UNSPLIT
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.launch import EmulatedLauncher
from mlagen.problem.expected import compare
from mlagen.problem.formats import scale_log2e
from mlagen.verify import verify

KERNEL, MERGE = "mla_decode_sm100", "mla_decode_merge_sm100"
CALL = ("q", "cache", "block_table", "cache_lengths")
MODES = ("latest", "earliest", "random")
# None, one, around one tile of 64 keys and two, and twice around the ring of tiles.
LENGTHS = (0, 1, 63, 64, 65, 128, 129, 200, 330)
STORED = [
    {"cache_dtype": cache, "dtype": q}
    for cache in ("bf16", "fp8_e4m3", "fp8_rope_aware")
    for q in ("bf16", "fp8_e4m3", "fp8_rope_aware")
    if cache == "fp8_rope_aware" or q != "fp8_rope_aware"
][1:]  # the first is all bf16
OF_E4M3 = {"dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3", "compute": "fp8"}


# Types of cache and queries, and of products.
TYPES = [{}, *STORED, OF_E4M3]


@lru_cache(maxsize=64)
def built(config, ctas=None, several=0):
    """`several`: blocks, or pairs, take several items."""
    knobs = {} if ctas is None else {"ctas": ctas}
    return build(KERNEL, config, knobs={**knobs, **({"persistent": 1} if several else {})})


def merging(config, ctas=None, several=0):
    """The kernel as a function, with its merge."""
    return decode_kernel(
        built(config, ctas, several),
        build=lambda name, fields: build(name, MlaDecodeMergeConfig(**fields)),
    )


def check(artifact, **sizes):
    assert artifact.manifest.resources.vgpr_spills == 0
    report = verify(artifact, **sizes)
    assert report.passed, report.facts()


@pytest.mark.parametrize("heads", [1, 8, 13, 16, 32, 40, 64, 65, 96, 128])
@pytest.mark.parametrize("data", ["realistic", "randn", "late_max", "falling"])
def test_heads(heads, data):
    check(built(MlaDecodeConfig(heads)), lengths=(0, 1, 65, 330), data=data, modes=MODES)


@pytest.mark.parametrize("mask", ["null", "causal"])
@pytest.mark.parametrize("q_len", [1, 2, 5, 8])
def test_new_tokens(q_len, mask):
    """Older ones see fewer keys; the oldest of a short sequence sees none."""
    check(built(MlaDecodeConfig(12, q_len=q_len, mask=mask)), lengths=LENGTHS, data="late_max")


@pytest.mark.parametrize("split_keys", [0, 64])
@pytest.mark.parametrize("page_size", [1, 64])
@pytest.mark.parametrize("window", [1, 31, 32, 33, 64, 150, 1000])
def test_windows(window, page_size, split_keys):
    """Their first keys lie in one tile, or in two; whole parts of a sequence may be hidden."""
    mask = f"sliding_window_causal[{window}]"
    config = MlaDecodeConfig(12, q_len=8, mask=mask, page_size=page_size)
    check(built(config), lengths=(5, 40, 100, 290), split_keys=split_keys, data="late_max")


@pytest.mark.parametrize("split_keys", [0, 64])
@pytest.mark.parametrize("cache", ["bf16", "fp8_rope_aware"])
@pytest.mark.parametrize("chunk", [1, 31, 32, 64, 100, 1000])
def test_chunks(chunk, cache, split_keys):
    """New tokens lie in one chunk, or in several; whole parts of a sequence may be hidden."""
    config = MlaDecodeConfig(12, q_len=8, mask=f"chunked_causal[{chunk}]", cache_dtype=cache)
    lengths = (0, 5, 40, 64, 103, 290)
    check(built(config), lengths=lengths, split_keys=split_keys, data="late_max")


@pytest.mark.parametrize("page_size", [1, 16, 32, 64, 128, 192, 320])
@pytest.mark.parametrize("data", ["realistic", "late_max"])
def test_pages(page_size, data):
    check(built(MlaDecodeConfig(4, page_size=page_size)), lengths=LENGTHS, data=data)


@pytest.mark.parametrize("kv_heads", [2, 8])
@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_kv_heads(kv_heads, page_size):
    config = MlaDecodeConfig(16, num_kv_heads=kv_heads, q_len=2, page_size=page_size)
    check(built(config), lengths=(1, 70, 130))


@pytest.mark.parametrize("split_keys", [64, 128, 192])
@pytest.mark.parametrize("heads", [40, 128])
def test_parts_of_sequences(heads, split_keys):
    config = MlaDecodeConfig(heads, q_len=2)
    check(built(config), lengths=(0, 64, 65, 300), split_keys=split_keys, data="late_max")


@settings(max_examples=6)
@given(
    heads=st.integers(1, 128),
    page_size=st.sampled_from([1, 16, 32, 64, 192]),
    q_len=st.integers(1, 8),
    mask=st.sampled_from(["null", "causal", "sliding_window_causal[70]", "chunked_causal[70]"]),
    fields=st.sampled_from(TYPES),
    lengths=st.lists(st.integers(0, 400), min_size=1, max_size=4).filter(any),
    split_keys=st.sampled_from([0, 64, 128]),
    data=st.sampled_from(["realistic", "late_max"]),
    ctas=st.sampled_from([None, 1]),
    several=st.integers(0, 3),
)
def test_any_call(heads, page_size, q_len, mask, fields, lengths, split_keys, data, ctas, several):
    """`several`: so many blocks, or pairs, have all items; 0: one each."""
    config = MlaDecodeConfig(heads, page_size=page_size, q_len=q_len, mask=mask, **fields)
    dealt = {"split_keys": split_keys, "blocks": max(several, 1)}
    check(built(config, ctas, several), lengths=tuple(lengths), data=data, **dealt)


def test_all_code_that_can_be_reached_is_checked():
    report = verify(built(MlaDecodeConfig(6, q_len=2)))
    assert report.passed, report.facts()


@pytest.mark.parametrize("fields", STORED, ids=str)
@pytest.mark.parametrize("heads", [1, 24, 64, 128])
@pytest.mark.parametrize("page_size", [1, 16, 64, 192])
@pytest.mark.parametrize("data", ["realistic", "late_max"])
def test_stored_types(fields, heads, page_size, data):
    config = MlaDecodeConfig(heads, page_size=page_size, **fields)
    check(built(config), lengths=(0, 1, 65, 200), data=data, modes=MODES)


@pytest.mark.parametrize("fields", STORED, ids=str)
@pytest.mark.parametrize("mask", ["null", "causal", "sliding_window_causal[70]"])
@pytest.mark.parametrize("q_len", [2, 8])
def test_stored_types_of_new_tokens(fields, mask, q_len):
    config = MlaDecodeConfig(12, q_len=q_len, mask=mask, **fields)
    check(built(config), lengths=(5, 40, 290), split_keys=128, data="late_max")


@pytest.mark.parametrize("dtype", ["bf16", "fp8_e4m3"])
@pytest.mark.parametrize("page_size", [1, 32, 64])
def test_kv_heads_of_e4m3(dtype, page_size):
    config = MlaDecodeConfig(
        16, num_kv_heads=4, page_size=page_size, dtype=dtype, cache_dtype="fp8_e4m3"
    )
    check(built(config), lengths=(1, 70, 130))


@pytest.mark.parametrize("heads", [1, 24, 64, 128])
@pytest.mark.parametrize("page_size", [1, 16, 64, 192])
@pytest.mark.parametrize("data", ["realistic", "randn", "late_max"])
def test_products_of_e4m3(heads, page_size, data):
    config = MlaDecodeConfig(heads, page_size=page_size, **OF_E4M3)
    # more than twice around the ring of keys
    check(built(config), lengths=(0, 1, 65, 650), data=data, modes=MODES)


@pytest.mark.parametrize("mask", ["null", "causal", "sliding_window_causal[70]"])
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_products_of_e4m3_of_new_tokens(mask, kv_heads):
    config = MlaDecodeConfig(12, num_kv_heads=kv_heads, q_len=4, mask=mask, **OF_E4M3)
    check(built(config), lengths=(5, 40, 290), split_keys=128, data="late_max")


@pytest.mark.parametrize("dtype", ["bf16", "fp8_e4m3"])
def test_products_of_e4m3_take_no_other_types(dtype):
    with pytest.raises(ConfigError, match=f"compute=fp8 does not go with dtype={dtype}"):
        MlaDecodeConfig(8, dtype=dtype, compute="fp8")


# ---- CTA pairs ------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", TYPES, ids=str)
@pytest.mark.parametrize("mask", ["causal", "sliding_window_causal[70]", "chunked_causal[100]"])
@pytest.mark.parametrize(("heads", "q_len"), [(65, 1), (100, 1), (9, 8), (96, 3)])
def test_pairs(heads, q_len, mask, fields):
    """Row blocks of 65 to 128 rows; a last one with fewer, of which the second block has none."""
    artifact = built(MlaDecodeConfig(heads, q_len=q_len, mask=mask, **fields))
    assert artifact.manifest.knobs["ctas"] == 2
    check(artifact, lengths=(0, 5, 64, 330), split_keys=128, data="late_max")


@pytest.mark.parametrize("fields", TYPES, ids=str)
@pytest.mark.parametrize("page_size", [1, 16, 32, 64, 192])
def test_pages_of_pairs(page_size, fields):
    config = MlaDecodeConfig(72, page_size=page_size, **fields)
    check(built(config), lengths=(0, 1, 65, 650), data="late_max", modes=MODES)


@pytest.mark.parametrize("fields", TYPES, ids=str)
@pytest.mark.parametrize("split_keys", [None, 64])
def test_a_pair_gives_the_bits_of_blocks(fields, split_keys):
    """Also by way of the merge, whose slots have 128 rows, or 64."""
    config = MlaDecodeConfig(50, q_len=2, **fields)
    made = mla_decode_inputs(config, data="late_max", seed=0, lengths=(200, 0, 65, 330))
    found = []
    for ctas in (2, 1):
        kernel = merging(config, ctas)
        plan = kernel.plan(made.cache_lengths, device="cpu", split_keys=split_keys)
        out, lse = kernel(**made.tensors, **made.scales, plan=plan)
        found.append((out.tobytes(), lse.tobytes()))
    assert found[0] == found[1]


def test_a_plan_of_pairs_is_for_pairs():
    config = MlaDecodeConfig(72)
    made = mla_decode_inputs(config, data="randn", seed=0, lengths=(70, 9))
    plan = merging(config).plan(made.cache_lengths, device="cpu")
    with pytest.raises(ConfigError, match="blocks of 128 query rows, the kernel has 64"):
        merging(config, 1)(**made.tensors, **made.scales, plan=plan)


@pytest.mark.parametrize(("heads", "kv_heads"), [(64, 1), (128, 2)])
def test_rows_that_one_block_has_take_no_pair(heads, kv_heads):
    config = MlaDecodeConfig(heads, num_kv_heads=kv_heads)
    assert built(config).manifest.knobs["ctas"] == 1
    with pytest.raises(ConfigError, match="ctas"):
        built(config, 2)


# ---- blocks that take several items ---------------------------------------------------------


@pytest.mark.parametrize("fields", TYPES, ids=str)
@pytest.mark.parametrize("heads", [8, 100])
@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_several_items(heads, page_size, fields):
    """Ones without keys and of a tile among them, and parts of sequences."""
    artifact = built(MlaDecodeConfig(heads, page_size=page_size, **fields), several=1)
    lengths = (0, 1, 65, 650, 330, 7)
    for split_keys, blocks in ((0, 2), (UNSPLIT, 1), (64, 1)):
        dealt = {"split_keys": split_keys, "blocks": blocks}
        check(artifact, lengths=lengths, data="late_max", modes=MODES, **dealt)


@pytest.mark.parametrize("mask", ["causal", "sliding_window_causal[70]", "chunked_causal[100]"])
@pytest.mark.parametrize(("heads", "q_len"), [(12, 2), (9, 8)])
def test_masks_of_several_items(heads, q_len, mask):
    artifact = built(MlaDecodeConfig(heads, q_len=q_len, mask=mask), several=1)
    check(artifact, lengths=(5, 0, 40, 290), split_keys=128, data="late_max")


@pytest.mark.parametrize("fields", TYPES, ids=str)
@pytest.mark.parametrize("heads", [24, 72])
@pytest.mark.parametrize("split_keys", [UNSPLIT, 64])
def test_several_items_have_the_bits_of_one_each(fields, heads, split_keys):
    """Also by way of the merge; a block without an item among those that have some."""
    config = MlaDecodeConfig(heads, **fields)
    made = mla_decode_inputs(config, data="late_max", seed=0, lengths=(200, 0, 65, 330))
    sms = 2 * unit_of(built(config).manifest).ctas
    found = []
    for several, blocks in ((0, None), (1, sms), (1, 8 * sms)):
        kernel = merging(config, None, several)
        plan = kernel.plan(made.cache_lengths, device="cpu", split_keys=split_keys, blocks=blocks)
        assert not several or (np.diff(plan.shares).min() == 0) == (blocks != sms)
        out, lse = kernel(**made.tensors, **made.scales, plan=plan)
        found.append((out.tobytes(), lse.tobytes()))
    assert found[0] == found[1] == found[2]


def test_all_code_of_several_items_that_can_be_reached_is_checked():
    report = verify(built(MlaDecodeConfig(6, q_len=2), several=1))
    assert report.passed, report.facts()


# ---- calls ----------------------------------------------------------------------------------


def test_a_call_of_split_work():
    """Both kernels: what one leaves, the other merges."""
    config = MlaDecodeConfig(12, q_len=2, page_size=16)
    kernel = merging(config)
    made = mla_decode_inputs(config, data="late_max", seed=0, lengths=(300, 0, 65))
    plan = kernel.plan(made.cache_lengths, device="cpu", split_keys=64)
    assert plan.merges is not None
    out, lse = kernel(**{n: getattr(made, n) for n in CALL}, scale=made.scale, plan=plan)
    splits = ((0, 1, 2, 3, 4), (0,), (0, 1))
    for oracle in (exact, rounded):
        expected = oracle(made, splits=splits, order=SELDOM_MOVED)
        assert compare(expected.output, out).passed
        assert compare_lse(expected.lse, lse).passed


@pytest.mark.parametrize("heads", [16, 24])
def test_packed_queries(heads):
    """Sequences with 0, 1 and 3 new tokens: each one's rows are as in a call of its own. With 24
    heads they are a CTA pair's."""
    config = MlaDecodeConfig(heads, q_len=3)
    kernel = decode_kernel(built(config))
    made = mla_decode_inputs(config, data="realistic", seed=0, lengths=(70, 200, 130))
    tokens = (1, 0, 3)
    q = np.concatenate([made.q[b, 3 - n :] for b, n in enumerate(tokens)])
    plan = kernel.plan(made.cache_lengths, device="cpu", q_lens=tokens)
    given = {**{n: getattr(made, n) for n in CALL}, "q": q}
    out, lse = kernel(**given, scale=made.scale, plan=plan)
    whole, logs = kernel(**{n: getattr(made, n) for n in CALL}, scale=made.scale)
    rows = [(b, t) for b, n in enumerate(tokens) for t in range(3 - n, 3)]
    assert out.tobytes() == np.stack([whole[b, t] for b, t in rows]).tobytes()
    assert lse.tobytes() == np.stack([logs[b, :, t] for b, t in rows], axis=1).tobytes()


def launched(artifact, made, **changed):
    """O and LSE of tensors that no call would take; the sanitizer finds nothing."""
    rows = made.q.size // made.q.shape[-1]
    unit = unit_of(artifact.manifest)
    work = plan_work(made.config, made.cache_lengths, blocks=1, unit=unit)
    o, lse = np.full((rows, 512), np.nan, made.q.dtype), np.full(rows, np.nan, np.float32)
    partial = np.full((1, unit.rows, 512), np.nan, np.float32)
    tensors = {
        **made.tensors, "items": work.items, "o": o, "lse": lse, "partial_o": partial,
        "partial_lse": partial[:, :, 0].copy(), **changed,
    }  # fmt: skip
    numbers = {
        "max_pages": tensors["block_table"].shape[1], "lse_stride": work.lse_stride,
        "scale_log2e": scale_log2e(made.score_scale), "num_blocks": made.num_blocks,
        "kv_scale": made.kv_scale,
    }  # fmt: skip
    args = artifact.manifest.args
    report = EmulatedLauncher().launch(
        artifact, tensors=tensors, sizes=unit.grid(len(work.items)),
        scalars={arg.name: numbers[arg.name] for arg in args if not arg.tensor},
    )  # fmt: skip
    assert not report.emulation.findings, report.emulation.findings
    return o, lse


@pytest.mark.parametrize("cache", ["bf16", "fp8_e4m3", "fp8_rope_aware"])
@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("heads", [4, 68])
def test_a_length_beyond_the_table_is_cut(page_size, cache, heads):
    config = MlaDecodeConfig(heads, page_size=page_size, cache_dtype=cache)
    artifact = built(config)
    made = mla_decode_inputs(config, lengths=(128, 70), data="randn")
    table = made.block_table[:, : 128 // page_size].copy()
    right = launched(artifact, made)
    lengths = np.array([640, 70], np.int32)
    cut = launched(artifact, made, block_table=table, cache_lengths=lengths)
    assert [x.tobytes() for x in cut] == [x.tobytes() for x in right]


@pytest.mark.parametrize("cache", ["bf16", "fp8_e4m3", "fp8_rope_aware"])
@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("heads", [4, 68])
def test_pages_out_of_the_pool_are_not_read(page_size, cache, heads):
    """Their rows are zeros, and no byte that is not the pool's is read."""
    config = MlaDecodeConfig(heads, page_size=page_size, cache_dtype=cache)
    artifact = built(config)
    made = mla_decode_inputs(config, lengths=(128, 70), data="randn")
    table = made.block_table.copy()
    table[0], table[1] = len(made.cache), -1
    o, lse = launched(artifact, made, block_table=table)
    assert not o.astype(np.float32).any()
    assert np.allclose(lse, np.log(np.repeat([128.0, 70.0], heads)))


@pytest.mark.parametrize(
    "fields", [{}, {"page_size": 1}, {"q_len": 3, "cache_dtype": "fp8_rope_aware"}], ids=str
)
@pytest.mark.parametrize("heads", [20, 128])
def test_the_same_arrays_on_hopper(fields, heads):
    """Both targets' results are within the bounds of both oracles, each of its own order."""
    config = MlaDecodeConfig(heads, **fields)
    made = mla_decode_inputs(config, data="late_max", lengths=(200, 0, 65))
    for name in (KERNEL, "mla_decode_sm90"):
        artifact = build(name, config)
        given = {n: getattr(made, n) for n in (*CALL, "kv_scales", "q_scales")}
        given = {n: array for n, array in given.items() if array is not None}
        out, lse = decode_kernel(artifact)(**given, scale=made.scale)
        for oracle in (exact, rounded):
            expected = oracle(made, order=order_of(artifact))
            assert compare(expected.output, out).passed, name
            assert compare_lse(expected.lse, lse).passed, name


@pytest.mark.parametrize("heads", [1, 20, 128])
@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize("data", ["realistic", "unseen"])
@pytest.mark.parametrize("slot_rows", [64, 128])
def test_merge(heads, sink, data, slot_rows):
    artifact = build(MERGE, MlaDecodeMergeConfig(heads, sink=sink))
    check(artifact, partials=(2, 3, 9, 33), slot_rows=slot_rows, data=data)


# ---- edits that must be found ---------------------------------------------------------------


def edited(artifact, pattern, to="", count=0):
    text, found = re.subn(pattern, to, artifact.text, count=count)
    assert found, pattern
    return replace(artifact, text=text)


WRONG = {  # clean, but not right
    "a key past the last that is seen": (
        r"setp\.le\.s32 %hidden, .*;",
        "setp.ne.u32 %hidden, 0, 0;",
    ),
    "an O that does not follow M": (r"mul\.rn\.f32x2 %two, %two, %factors;\n", ""),
    "a sum that does not follow M": (
        r"fma\.rn\.f32 (%l_0), %l_0, %alpha_0, %sum0",
        r"add.rn.f32 \1, \1, %sum0",
    ),
    "rows of the next lane": (r"shl\.b32 %line, %lane, 2;", "shl.b32 %line, %lane, 1;"),
    "the page of another tile": (r"add\.u32 (%ahead_0), %ahead_0, 1;", r"add.u32 \1, \1, 2;"),
    "LSE in log2 units": (r"mul\.rn\.f32 %log, %log, 0f3F317218;.*", ""),
    "O of the other half of columns": (r"xor\.b32 %row, %t, 64;", "xor.b32 %row, %t, 32;"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_edit_is_found(name):
    changed = edited(built(MlaDecodeConfig(16)), *WRONG[name])
    runs = [
        verify(changed, lengths=(33, 70, 400), data=data, modes=("latest",))
        for data in ("realistic", "late_max")
    ]
    assert not all(report.right for report in runs)


E4M3, ROPE = {"cache_dtype": "fp8_e4m3"}, {"cache_dtype": "fp8_rope_aware"}
WRONG_STORED = {
    "O without the cache's scale": (
        E4M3,
        r"ld\.param\.f32 %other, \[kv_scale\];",
        "mov.f32 %other, 0f3F800000;",
    ),
    "a tile's numbers of the tile before": (E4M3, r"(sub\.s32 %left_0, %left_0), 64;", r"\1, 128;"),
    "rope columns of the next thread": (
        ROPE,
        r"mad\.wide\.u32 %at, %quarter, 32, %src;",
        "mad.wide.u32 %at, %quarter, 16, %src;",
    ),
    "the scale of another key": (ROPE, r"shl\.b32 %line, %line, 5;", "shl.b32 %line, %line, 4;"),
    "P without its row's scale": (
        ROPE,
        r"(mov\.b64 %factors, \{%sigma0, %sigma1\};)",
        r"mov.b64 %factors, {0f3F800000, 0f3F800000};",
    ),
    "a row without its token's scale": (
        {**ROPE, "dtype": "fp8_rope_aware"},
        r"mul\.rn\.f32 %c_0, %c_0, %factor;",
        "",
    ),
}


@pytest.mark.parametrize("name", WRONG_STORED)
def test_a_wrong_edit_of_stored_rows_is_found(name):
    fields, *edit = WRONG_STORED[name]
    changed = edited(built(MlaDecodeConfig(16, q_len=2, **fields)), *edit)
    report = verify(changed, lengths=(33, 70, 400), modes=("latest",))
    assert not report.right


@pytest.mark.parametrize("fields", [E4M3, ROPE], ids=str)
def test_rows_without_a_page_that_are_loaded_are_found(fields):
    artifact = built(MlaDecodeConfig(16, **fields))
    changed = edited(artifact, r"setp\.lt\.u32 %there, %place0, %t;", "setp.eq.u32 %there, 0, 0;")
    report = verify(changed, lengths=(33, 70), modes=("latest",))
    assert not report.clean


def test_rows_past_the_end_that_are_fetched_are_found():
    """They are NaN, and P is 0 there: 0 * NaN."""
    artifact = built(MlaDecodeConfig(16))
    changed = edited(artifact, r"setp\.lt\.s32 %cut, .*;", "setp.ne.u32 %cut, 0, 0;")
    report = verify(changed, lengths=(33, 70), modes=("latest",))
    assert not report.right and any(c.nans for run in report.runs for c in run.comparisons)


WAITS = {
    "of the slot of a tile": r"@!%ready bra \w+;",
    "of TMEM": r"tcgen05\.wait::ld\.sync\.aligned;",
    "between warps": r"bar\.sync 1, 128;",
    "of the proxy": r"fence\.proxy\.async\.shared::cta;",
}


@pytest.mark.parametrize("name", WAITS)
def test_a_removed_wait_is_found(name):
    changed = edited(built(MlaDecodeConfig(16)), WAITS[name])
    report = verify(changed, lengths=(500,))
    assert not report.clean


def test_a_kernel_that_does_not_let_the_merge_begin_is_told():
    """`launch_dependents` stands before anything may leave."""
    lines = built(MlaDecodeConfig(16)).text.split("\n")
    feeder = next(n for n, line in enumerate(lines) if line.strip() == "FEEDER:")
    found = next(n for n, line in enumerate(lines) if "griddepcontrol.launch_dependents" in line)
    assert not any("bra" in line for line in lines[feeder + 1 : found])

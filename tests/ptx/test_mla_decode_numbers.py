"""The MLA decode kernels' numbers without a GPU: their PTX in the emulator, both oracles."""

from dataclasses import replace
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
from ptx_runs import Map, run

from mlagen.attention.latent.order import KEYS_AS_ROWS, SEESAW
from mlagen.attention.latent.problem import item_rows
from mlagen.attention.latent.sm_90a.swap_ab.kernel import is_few
from mlagen.codegen import build
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.orders import FROM_REGISTERS
from mlagen.families.mla_decode.plan import plan_work
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.rounded import rounded
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.problem.expected import compare
from mlagen.problem.formats import BF16, scale_log2e
from mlagen.targets.nvidia.ptxas import PtxasResult

UNASSEMBLED = PtxasResult(b"", "", 0, 0, 0, 0, ())


@cache
def text(name, problem, knobs=()):
    """The kernel's PTX. It is emulated: what ptxas makes of it is not asked, which takes most of a
    build."""
    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=UNASSEMBLED):
        return build(name, problem, knobs=dict(knobs)).text


def few(config, knobs):
    """Whether keys are the rows of the kernel's products."""
    chosen = dict(knobs)
    seesaw = str(chosen.get("variant", "")).startswith("seesaw") or chosen.get("persistent")
    return is_few(config) and not seesaw


def few_order(config):
    """The order of a kernel of few query rows, which takes stored keys from registers."""
    return FROM_REGISTERS.get(config.cache_dtype, KEYS_AS_ROWS)


def q_rows(config, knobs):
    """Rows of Q that a block loads."""
    return -(-item_rows(config) // 8) * 8 if few(config, knobs) else 64


def launch(inputs, work, *, change=lambda text: text, knobs=()):
    """O and LSE as both kernels leave them, from poisoned memory; `change` plants a defect. A block
    an item, or, where the work has shares, as many items as it says."""
    config, q = inputs.config, inputs.q
    o = np.full((*q.shape[:-1], 512), np.nan, BF16)
    tokens = q.size // (config.num_heads * q.shape[-1])
    lse = np.full(tokens * config.num_heads, np.nan, np.float32)
    partial_o = np.full((max(work.slots, 1), 64, 512), np.nan, np.float32)
    partial_lse = np.full((max(work.slots, 1), 64), np.nan, np.float32)
    out = {"o": o, "lse": lse, "partial_o": partial_o, "partial_lse": partial_lse}
    pool = inputs.cache
    gathered = config.page_size == 1
    rows = Map(pool.reshape(-1, pool.shape[2] * pool.shape[3]), min(config.page_size, 64))
    arguments = {
        "q": Map(q.reshape(-1, 576), q_rows(config, knobs)) if config.dtype == "bf16" else q,
        "cache": pool if gathered else rows,
        "items": work.items, "block_table": inputs.block_table,
        "cache_lengths": inputs.cache_lengths, **out, "max_pages": inputs.max_pages,
        "lse_stride": work.lse_stride, "scale_log2e": np.float32(scale_log2e(inputs.score_scale)),
    }  # fmt: skip
    if gathered or config.rope_aware:
        arguments["num_blocks"] = inputs.num_blocks
    if config.rope_aware:
        arguments["kv_scales"] = inputs.kv_scales
        if config.rope_aware_queries:
            arguments["q_scales"] = inputs.q_scales
    elif config.cache_dtype != "bf16":
        arguments["kv_scale"] = np.float32(inputs.kv_scale)
    blocks, kernel = len(work.items), text("mla_decode_sm90", config, knobs)
    arrivals = np.zeros(2 * max(work.slots, 1), np.int32)
    if work.shares is not None:
        arguments["shares"], blocks = work.shares, len(work.shares) - 1
    if ".param .u64 arrivals" in kernel:
        arguments["arrivals"] = arrivals
    run(change(kernel), (blocks, 1), arguments)
    assert not arrivals.any(), "not as it was found"
    if len(work.merges):
        merge = text("mla_decode_merge_sm90", MlaDecodeMergeConfig(config.num_heads))
        run(
            merge, (len(work.merges), 1),
            {"merges": work.merges, **out, "lse_stride": work.lse_stride},
        )  # fmt: skip
    return o, lse


def passes(inputs, o, lse, **named):
    for oracle in (exact, rounded):
        expected = oracle(inputs, **named)
        for found in (compare(expected.output, o), compare_lse(expected.lse, lse)):
            assert found.passed, (found.oracle, found.worst, found.nans, found.failures)


def check(config, lengths, *, data="realistic", knobs=(), **planned):
    inputs = mla_decode_inputs(config, lengths=lengths, data=data)
    work = plan_work(config, lengths, **(planned or {"blocks": 1}))
    o, lse = launch(inputs, work, knobs=knobs)
    shape = (inputs.batch, config.num_heads, config.q_len)
    order = few_order(config) if few(config, knobs) else SEESAW
    passes(inputs, o, lse.reshape(shape), splits=work.splits, order=order)


PERSISTENT = (("persistent", 1),)


def in_turn(work, *ends):
    """The work with its items as they are, block after block up to each of `ends`."""
    return replace(work, shares=np.array([0, *ends], np.int32))


def check_items(config, lengths, work, knobs=PERSISTENT):
    inputs = mla_decode_inputs(config, lengths=lengths, data="realistic")
    o, lse = launch(inputs, work, knobs=knobs)
    shape = (inputs.batch, config.num_heads, config.q_len)
    passes(inputs, o, lse.reshape(shape), splits=work.splits)


@pytest.mark.parametrize(
    "lengths",
    [
        # Tiles of a block's items, longest first as the plan has them: 5, 4, 3, 2, 1, 1, 0, 0.
        (320, 250, 192, 66, 64, 1, 0, 0),
        (130, 130, 5, 5),  # odd after odd: the even slot is twice ahead of the odd one
    ],
)
def test_items_of_one_block(lengths):
    config = MlaDecodeConfig(16)
    work = plan_work(config, lengths, split_keys=4096)
    check_items(config, lengths, in_turn(work, len(work.items)))


def test_items_in_any_order():
    """Empty ones first, between and last; odd, then even; a block without any."""
    config, lengths = MlaDecodeConfig(16), (0, 65, 0, 0, 300, 128, 64, 192, 0, 2)
    work = plan_work(config, lengths, split_keys=4096)
    order = np.argsort(work.items[:, 0])
    work = replace(work, items=work.items[order])
    check_items(config, lengths, in_turn(work, 9, 9, 10))


def test_whole_items_and_parts():
    """Of two new tokens and two row blocks, after each other in one block."""
    config, lengths = MlaDecodeConfig(40, q_len=2), (300, 1, 70)
    work = plan_work(config, lengths, split_keys=128)
    assert len(work.items) == 10 and (work.items[:, 7] < 0).sum() == 4
    check_items(config, lengths, in_turn(work, 6, 10))


@pytest.mark.parametrize(
    "fields",
    [
        {"num_heads": 16, "q_len": 4, "mask": "sliding_window_causal[70]"},
        {"num_heads": 12, "page_size": 32},
        {"num_heads": 40, "page_size": 16, "q_len": 2},
        {"num_heads": 24, "page_size": 192, "q_len": 3, "mask": "null"},
        {"num_heads": 4, "num_kv_heads": 2, "q_len": 2},
        {"num_heads": 6, "num_kv_heads": 3, "page_size": 1, "q_len": 2},
    ],
    ids=str,
)
def test_forms_of_persistent_blocks(fields):
    """As the plan deals them out to two blocks."""
    config, lengths = MlaDecodeConfig(**fields), (3, 260, 0, 140)
    work = plan_work(config, lengths, split_keys=128, blocks=2, persistent=True)
    assert len(work.shares) == 3
    check_items(config, lengths, work)


@pytest.mark.parametrize(
    "fields, planned, lengths",
    [
        # A share ends in the middle of a sequence: its second part takes in the first.
        ({"num_heads": 16}, (700, 700, 700), (700, 700, 700)),
        # Two blocks with the same keys; a sequence for itself.
        ({"num_heads": 128}, (600,) * 3, (600, 500, 600)),
        ({"num_heads": 16}, (2000,), (2000,)),
        ({"num_heads": 16, "q_len": 3}, (1500, 300), (1500, 300)),
        # Lengths that it was not planned for: the part that takes in has no keys, or none has.
        ({"num_heads": 16, "page_size": 16}, (700, 700, 700), (700, 260, 0)),
        ({"num_heads": 40, "q_len": 2}, (2000,), (3,)),
        ({"num_heads": 16, "mask": "sliding_window_causal[600]"}, (900,) * 3, (200, 900, 2)),
    ],
    ids=str,
)
def test_parts_that_the_last_one_takes_in(fields, planned, lengths):
    """Without a merge; also where rows of a part, or all of it, see no key."""
    config = MlaDecodeConfig(**fields)
    gang = -(-config.num_heads * config.q_len // 64)
    work = plan_work(config, planned, blocks=2 * gang, persistent=True)
    assert work.slots and (work.items[:, 10] > 0).any() and not len(work.merges)
    check_items(config, lengths, work)


CUT = MlaDecodeConfig(16), (700, 700, 700)


@pytest.mark.parametrize(
    "line, other",
    [
        ("mul.rn.f32 %theirs0, %theirs0, %sum;", "mov.f32 %theirs0, 0f00000000;"),
        ("mul.rn.f32 %inv1, %inv1, %other;", ""),
        ("add.rn.f32 %log0, %log0, %top;", ""),
        ("red.relaxed.gpu.global.inc.u32", "// "),
    ],
)
def test_a_part_that_is_taken_in_wrongly(line, other):
    """Weights, LSE, arrivals."""
    config, lengths = CUT
    work = plan_work(config, lengths, blocks=2, persistent=True)
    inputs = mla_decode_inputs(config, lengths=lengths, data="realistic")
    assert line in text("mla_decode_sm90", config, PERSISTENT)
    with pytest.raises(AssertionError):
        o, lse = launch(inputs, work, knobs=PERSISTENT, change=lambda t: t.replace(line, other))
        passes(inputs, o, lse.reshape(3, 16, 1), splits=work.splits)


def test_who_takes_in_is_started_later():
    """With the blocks the other way round nobody has arrived."""
    config, lengths = CUT
    work = plan_work(config, lengths, blocks=2, persistent=True)
    _, middle, end = work.shares.tolist()
    items = np.concatenate([work.items[middle:], work.items[:middle]])
    turned = in_turn(replace(work, items=items), end - middle, end)
    inputs = mla_decode_inputs(config, lengths=lengths, data="realistic")
    alone = replace(turned, shares=turned.shares[:2])  # it waits for a block that has not begun
    with pytest.raises(AssertionError, match="nobody can go on"):
        launch(inputs, alone, knobs=PERSISTENT)


@pytest.mark.parametrize(
    "knobs", [{"held": 1, "left_refill": "early", "ahead": 1, "evict": "first"}, {"boxes": 4}]
)
def test_knobs_beside_persistent(knobs):
    config, lengths = MlaDecodeConfig(64), (200, 1, 130, 0, 70)
    work = plan_work(config, lengths, split_keys=4096)
    check_items(config, lengths, in_turn(work, 5), (*PERSISTENT, *knobs.items()))


@pytest.mark.parametrize("lengths", [(0, 1, 65), (130, 200, 449)])
def test_lengths(lengths):
    check(MlaDecodeConfig(64), lengths)


@pytest.mark.parametrize(
    "fields",
    [
        {"num_heads": 8, "page_size": 1},
        {"num_heads": 40, "page_size": 16, "q_len": 2},
        {"num_heads": 12, "page_size": 32},
        {"num_heads": 24, "page_size": 192, "q_len": 3, "mask": "null"},
        {"num_heads": 4, "num_kv_heads": 2, "q_len": 2},
        {"num_heads": 6, "num_kv_heads": 3, "page_size": 1, "q_len": 2},
        {"num_heads": 16, "q_len": 4, "mask": "sliding_window_causal[70]"},
        {"num_heads": 16, "cache_dtype": "fp8_e4m3"},
        {"num_heads": 4, "num_kv_heads": 2, "cache_dtype": "fp8_e4m3", "page_size": 32},
        {"num_heads": 8, "cache_dtype": "fp8_e4m3", "page_size": 1},
        {"num_heads": 8, "cache_dtype": "fp8_e4m3", "page_size": 128},
        {"num_heads": 40, "cache_dtype": "fp8_rope_aware", "page_size": 1, "q_len": 2},
        {"num_heads": 8, "cache_dtype": "fp8_rope_aware", "page_size": 16},
        {"num_heads": 40, "dtype": "fp8_rope_aware", "cache_dtype": "fp8_rope_aware", "q_len": 3},
        {
            "num_heads": 3,
            "dtype": "fp8_rope_aware",
            "cache_dtype": "fp8_rope_aware",
            "page_size": 1,
            "mask": "sliding_window_causal[70]",
        },
        {
            "num_heads": 16,
            "dtype": "fp8_e4m3",
            "cache_dtype": "fp8_rope_aware",
            "page_size": 192,
            "q_len": 3,
            "mask": "sliding_window_causal[70]",
        },
        {"num_heads": 6, "num_kv_heads": 2, "dtype": "fp8_e4m3", "page_size": 1},
    ],
    ids=str,
)
def test_variants(fields):
    check(MlaDecodeConfig(**fields), (3, 260), split_keys=128)


@pytest.mark.parametrize(
    "fields, knobs",
    [
        ({"page_size": 32}, {"held": 1, "left_refill": "early", "boxes": 4}),
        ({"page_size": 128}, {"ahead": 1, "evict": "first", "boxes": 1}),
        ({"cache_dtype": "fp8_e4m3"}, {"left_refill": "late", "ahead": 1, "evict": "first"}),
    ],
    ids=str,
)
def test_choices_of_the_knobs(fields, knobs):
    config = MlaDecodeConfig(num_heads=8, **fields)
    knobs = {**knobs, **({"variant": "seesaw"} if is_few(config) else {})}
    check(config, (3, 260), split_keys=128, knobs=tuple(knobs.items()))


@pytest.mark.parametrize(
    "fields",
    [
        {"num_heads": 40, "dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3", "q_len": 2},
        {"num_heads": 16, "cache_dtype": "fp8_rope_aware"},
    ],
    ids=str,
)
def test_how_rows_are_stored(fields):
    check(MlaDecodeConfig(**fields), (3, 260), split_keys=128)


def test_rope_aware_queries():
    config = MlaDecodeConfig(16, dtype="fp8_rope_aware", cache_dtype="fp8_rope_aware")
    check(config, (3, 260), split_keys=128)


@pytest.mark.parametrize("cache", ["fp8_e4m3", "fp8_rope_aware"])
def test_queries_of_all_sizes(cache):
    """Rows of Q become f16, whose range is small: each has a power of two of its own."""
    config = MlaDecodeConfig(8, cache_dtype=cache)
    inputs = mla_decode_inputs(config, lengths=(70,), data="randn", scale=2.0**-24)
    sizes = 2.0 ** np.array([20, 22, -40, 20, -100, 0, 21, 20])[:, None]
    q = inputs.q.astype(np.float64) * sizes
    q[:, :, 5] = 0
    q[:, :, 3, ::2] *= 2.0**-20
    q[:, :, 7, 64:] *= 2.0**-33  # rounded
    inputs = replace(inputs, q=q.astype(BF16))
    work = plan_work(config, inputs.cache_lengths, blocks=1)
    o, lse = launch(inputs, work)
    passes(inputs, o, lse.reshape(1, 8, 1), splits=work.splits, order=few_order(config))
    if cache == "fp8_e4m3":  # P is f16
        with pytest.raises(AssertionError):
            passes(inputs, o, lse.reshape(1, 8, 1), splits=work.splits, order=KEYS_AS_ROWS)


def defective(config, old, new):
    """Asserts that the kernel with `new` in place of `old` is found to be wrong."""
    inputs = mla_decode_inputs(config, lengths=(66,), data="randn")
    work = plan_work(config, inputs.cache_lengths, blocks=1)

    def change(whole):
        assert old in whole
        return whole.replace(old, new)

    o, lse = launch(inputs, work, change=change)
    with pytest.raises(AssertionError):
        passes(inputs, o, lse.reshape(1, config.num_heads, 1), splits=work.splits)


@pytest.mark.parametrize(
    "old, new",
    [
        ("selp.f32 %s0, 0fFF800000,", "selp.f32 %s0, 0fC0000000,"),  # a hidden key that counts
        ("0f3F317218", "0f3F318000"),  # ln 2, but for its last bits
    ],
)
def test_a_defect_is_seen(old, new):
    defective(MlaDecodeConfig(64), old, new)


@pytest.mark.parametrize(
    "old, new",
    [
        # Keys of the item before; a phase that is that of its Q, of its odd tile.
        ("mov.u32 %valid0, %next_reach0;", "max.u32 %valid0, %next_reach0, 194;"),
        ("xor.b32 %left_own, %left_own, 1;", ""),
        ("xor.b32 %right_turn11, %right_turn11, 1;\n    bra RIGHT_END;", "bra RIGHT_END;"),
    ],
)
def test_what_an_item_leaves_to_the_next_is_seen(old, new):
    config, lengths = MlaDecodeConfig(16), (130, 66)
    work = in_turn(plan_work(config, lengths, split_keys=4096), 2)
    inputs = mla_decode_inputs(config, lengths=lengths, data="randn")

    def change(whole):
        assert old in whole
        return whole.replace(old, new)

    with pytest.raises(AssertionError):  # wrong, or a deadlock
        o, lse = launch(inputs, work, change=change, knobs=PERSISTENT)
        passes(inputs, o, lse.reshape(2, config.num_heads, 1), splits=work.splits)


def test_the_scale_of_another_row_is_seen():
    for heads, line, other in (
        (40, "%key, %thread, 63;", "%key, %thread, 62;"), (16, "%key, %key, 8;", "%key, %key, 9;")
    ):  # fmt: skip
        defective(MlaDecodeConfig(heads, cache_dtype="fp8_rope_aware"), line, other)

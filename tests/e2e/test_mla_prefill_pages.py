"""mla_prefill_v2 over pages, executed: every size against every form of keys, type and tile.

Pages lie in shuffled order among pages of nobody; what is no key is NaN, and table entries past a
sequence's pages name one of nobody or one that does not exist.
"""

import os
from dataclasses import replace

import numpy as np
import pytest
from mla_cases import KERNEL, built, check

from mlagen.binary import load_code_object
from mlagen.emulator import Argument, Buffer, Launch, emulate
from mlagen.errors import ConfigError
from mlagen.families.mla_prefill.made_up import mla_prefill_inputs
from mlagen.families.mla_prefill.problem import MlaConfigV2
from mlagen.ops import MlaPrefillKernel
from mlagen.problem.formats import scale_log2e
from mlagen.verify import verify_inputs

PAGES = [1, 16, 32, 64, 128, 192, 256]
KV_FORMS = ["k_and_v", "nope_rope", "latent"]
SEQUENCES = {
    "lengths": [300, 0, 1, 33, 20],
    "num_keys": [300, 70, 0, 705, 17],
    "start_pos": [0, 3, 5, 672, 0],
}


def config_of(heads=(4, 2), **fields):
    return MlaConfigV2(*heads, **{"dtype": "fp8_e4m3", "ragged": True, "lse": True, **fields})


@pytest.mark.parametrize("page_size", PAGES)
@pytest.mark.parametrize(
    ("dtype", "kv_block", "kv_form"),
    [*(("fp8_e4m3", 128, form) for form in KV_FORMS), ("bf16", 128, ""), ("bf16", 64, "")],
)
def test_sequences_of_all_lengths(page_size, dtype, kv_block, kv_form):
    """bf16 takes another form of keys at each page size."""
    kv_form = kv_form or KV_FORMS[(PAGES.index(page_size) + kv_block // 64) % 3]
    config = config_of(page_size=page_size, dtype=dtype, kv_block=kv_block, kv_form=kv_form)
    check(built(config), data="jumps", modes=["latest", "earliest"], **SEQUENCES)


@pytest.mark.parametrize("v_layout", ["padded", "swizzled", "plain"])
@pytest.mark.parametrize("page_size", [1, 16, 32, 64, 192])
def test_layouts_of_v_fit_or_are_not_offered(page_size, v_layout):
    config = config_of((1, 1), page_size=page_size, mask="null")
    if v_layout == "padded" and page_size in (16, 32):
        with pytest.raises(ConfigError, match="v_layout='padded' is not among its choices"):
            built(config, v_layout=v_layout)
        return
    check(built(config, v_layout=v_layout), lengths=[70], num_keys=[333], modes=["latest"])


@pytest.mark.parametrize("page_size", [1, 16, 192, 256])
@pytest.mark.parametrize("mask", ["sliding_window_causal[100]", "chunked_causal[77]"])
def test_windows_start_inside_a_page(page_size, mask):
    kernel = built(config_of(page_size=page_size, mask=mask))
    check(kernel, lengths=[40] * 4, start_pos=[0, 95, 163, 700], data="jumps", modes=["latest"])


@pytest.mark.parametrize("page_size", [1, 16, 64, 128, 192])
@pytest.mark.parametrize("kv_form", KV_FORMS)
def test_paged_and_contiguous_give_the_same_bits(kv_form, page_size):
    """The same tiles in the same order: where keys lie must not matter at all."""
    made = []
    for size in (0, page_size):
        config = config_of(kv_form=kv_form, page_size=size)
        # One generator for both: the keys are drawn before the pages are.
        inputs = mla_prefill_inputs(
            config, lengths=[300, 33], num_keys=[333, 70], start_pos=[33, 37], quantise=True
        )
        run = MlaPrefillKernel(built(config)).run(inputs)
        assert not np.isnan(run.output).any()
        made.append((run.output.view(np.uint32), run.lse.view(np.uint32)))
    contiguous, paged = made
    assert np.array_equal(paged[0], contiguous[0])
    assert np.array_equal(paged[1], contiguous[1])


POOLS = {"k": 5 << 44, "v": 6 << 44, "k_rope": 7 << 44}  # addresses of the pools


@pytest.mark.parametrize("page_size", [1, 16, 64, 128, 192])
@pytest.mark.parametrize("kv_form", ["nope_rope", "latent"])
def test_page_offsets_have_64_bits(kv_form, page_size):
    """The pools are as large as page numbers go: only the pages of the sequence exist, each a
    buffer of its own, and touching anything else is a finding."""
    config = config_of((2, 2), kv_form=kv_form, page_size=page_size)
    kernel = built(config)
    inputs = mla_prefill_inputs(config, lengths=[40], num_keys=[70], start_pos=[30])
    near = MlaPrefillKernel(kernel).run(inputs)
    used = config.pages(70)
    limit = 2**32 // (page_size * config.k_row_stride)  # the first page past 4 GiB
    far = [limit - 1, limit, 3 * limit + 1, 2**31 - 1, 0]
    table = np.array([[*far, *range(2 * limit, 2 * limit + 70)][:used]], np.int32)
    output, lse = np.full_like(near.output, np.nan), np.full_like(near.lse, np.nan)
    values = {
        "q": Buffer("q", inputs.q, "read"),
        "o": Buffer("o", output, "write"),
        "lse": Buffer("lse", lse, "write"),
        "q_offsets": Buffer("q_offsets", inputs.q_offsets, "read"),
        "kv_lengths": Buffer("kv_lengths", inputs.kv_lengths, "read"),
        "start_positions": Buffer("start_positions", inputs.start_pos, "read"),
        "page_table": Buffer("page_table", table, "read"),
        "seq_len": np.uint32(40),
        "batch": np.uint32(1),
        "max_pages": np.uint32(used),
        "scale_log2e": np.float32(scale_log2e(inputs.score_scale)),
        "out_scale": np.float32(inputs.v_scale),
        **{name: np.uint64(address) for name, address in POOLS.items()},
    }
    arguments = []
    for name, pool in inputs.key_tensors().items():
        for old, new in zip(inputs.page_table[0, :used], table[0], strict=True):
            page = np.ascontiguousarray(pool[old])
            place = Buffer(f"{name} {new}", page, "read", POOLS[name] + int(new) * page.nbytes)
            arguments.append(Argument(0, place))  # makes it known; q's address overwrites it
    arguments += [Argument(arg.offset, values[arg.name]) for arg in kernel.manifest.args]
    launch = Launch((2, 1, 1), kernel.manifest.block, arguments, kernel=KERNEL)
    result = emulate(load_code_object(kernel.code), launch)
    assert not result.findings, result.findings[0]
    assert output.tobytes() == near.output.tobytes()
    assert lse.tobytes() == near.lse.tobytes()


@pytest.mark.skipif(
    "MLAGEN_LARGE_POOLS" not in os.environ,
    reason="copies a pool of 4.5 GiB: set MLAGEN_LARGE_POOLS=1 where 12 GiB are free",
)
@pytest.mark.parametrize("page_size", [1, 4096])
def test_a_pool_beyond_4_gib(page_size):
    config = config_of((8, 8), kv_form="latent", page_size=page_size, mask="null")
    small = mla_prefill_inputs(config, lengths=[64], num_keys=[4196], quantise=True)
    used = config.pages(4196)
    count = 9 * 2**29 // (page_size * config.k_row_stride)  # 4.5 GiB
    table = np.linspace(count - 1, count // 3, used).astype(np.int32)[None]
    pool = np.zeros((count, *small.k.shape[1:]), small.k.dtype)
    pool[table[0]] = small.k[small.page_table[0, :used]]
    assert int(table[0, 0]) * pool[0].nbytes > 2**32
    inputs = replace(small, k=pool, page_table=table)
    report = verify_inputs(built(config), inputs, modes=["latest"])
    assert report.passed, str(report.error())


def test_page_sizes_that_are_none():
    with pytest.raises(ConfigError, match="page_size=24: a page holds 1, 16, 32 keys, or a mult"):
        config_of(page_size=24)

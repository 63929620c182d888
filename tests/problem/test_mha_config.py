"""MhaConfigV2: what is legal, what is refused and how, and the arithmetic it offers."""

import dataclasses

import pytest

from mlagen.attention.masks import Causal, SlidingWindowCausal
from mlagen.errors import ConfigError
from mlagen.families.mha_prefill.problem import MhaConfigV2


def refusal(**fields):
    with pytest.raises(ConfigError) as caught:
        MhaConfigV2(**{"num_heads": 8, "num_kv_heads": 2, **fields})
    return str(caught.value)


@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize("output_dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("dtype, kv_block", [("bf16", 64), ("fp8_e4m3", 64), ("fp8_e4m3", 128)])
@pytest.mark.parametrize("heads, kv_heads", [(1, 1), (4, 1), (8, 2), (6, 3), (32, 32)])
def test_every_legal_combination_is_a_config(depth, output_dtype, dtype, kv_block, heads, kv_heads):
    config = MhaConfigV2(
        heads, kv_heads, depth=depth, output_dtype=output_dtype, dtype=dtype, kv_block=kv_block
    )
    assert MhaConfigV2.from_fields(config.to_fields()) == config


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"depth": 96}, ["depth=96", "64 or 128"]),
        ({"dtype": "fp16"}, ["dtype=fp16", "bf16 or fp8_e4m3"]),
        ({"output_dtype": "fp16"}, ["output_dtype=fp16", "bf16 or fp32"]),
        ({"kv_block": 128}, ["kv_block=128", "dtype=bf16", "64 for bf16"]),
        ({"kv_block": 32, "dtype": "fp8_e4m3"}, ["kv_block=32", "64 or 128 for fp8_e4m3"]),
        ({"num_kv_heads": 3}, ["num_heads=8", "num_kv_heads=3", "1, 2, 4 or 8"]),
        ({"num_kv_heads": 16}, ["not a multiple", "1, 2, 4 or 8"]),
        ({"num_heads": 0}, ["num_heads=0", "1 .. 65535"]),
        ({"num_kv_heads": -2}, ["num_kv_heads=-2"]),
        ({"num_heads": 70000}, ["num_heads=70000", "65535"]),
        ({"num_heads": 2.5}, ["num_heads=2.5", "integer"]),
        ({"num_heads": True}, ["num_heads=True", "integer"]),
        ({"q_block_size": 64}, ["q_block_size=64", "32"]),
        ({"num_warps": 4}, ["num_warps=4", "8 sub-blocks", "8 or 16"]),
        ({"num_warps": 6, "depth": 64}, ["num_warps=6", "4 sub-blocks", "4, 8, 12 or 16"]),
        ({"num_warps": 24}, ["num_warps=24", "at most 16"]),
        ({"num_warps": 0}, ["num_warps=0"]),
        ({"fp8_mma_k_128": True, "dtype": "fp8_e4m3"}, ["fp8_mma_k_128", "16x16x128", "P cannot"]),
        ({"fp8_mma_k_128": 1}, ["fp8_mma_k_128=1", "true or false"]),
        ({"rescale_threshold": -1.0}, ["rescale_threshold=-1.0", "log2"]),
        ({"rescale_threshold": float("nan")}, ["rescale_threshold=nan", "finite"]),
        ({"rescale_threshold": float("inf")}, ["rescale_threshold=inf", "finite"]),
        ({"rescale_threshold": "8"}, ["rescale_threshold='8'", "number"]),
        ({"mask": "diagonal"}, ["unknown mask 'diagonal'", "sliding_window_causal[W]"]),
        ({"mask": 3}, ["mask=3"]),
        ({"mask": "sliding_window_causal[0]"}, ["[0]", "1 to 2147483647"]),
        ({"page_size": 24}, ["page_size=24", "16, 32 or a multiple of 64"]),
        ({"page_size": 96}, ["page_size=96", "multiple of 64"]),
        ({"page_size": 8}, ["page_size=8", "16, 32"]),
        ({"page_size": -64}, ["page_size=-64"]),
        ({"page_size": 16.0}, ["page_size=16.0", "integer"]),
        ({"page_size": 2**24}, ["512 bytes", "8589934592 bytes", "at most 8388608"]),
        ({"ragged": 1}, ["ragged=1", "true or false"]),
        ({"sink": "yes"}, ["sink='yes'", "true or false"]),
        ({"lse": None}, ["lse=None", "true or false"]),
    ],
)
def test_an_illegal_value_is_refused_with_what_fits(fields, words):
    message = refusal(**fields)
    for word in words:
        assert word in message


def test_depth_64_with_four_waves_is_legal():
    config = MhaConfigV2(8, 2, depth=64, num_warps=4)
    assert (config.k_sub_blocks, config.q_tile, config.threads) == (4, 128, 256)


@pytest.mark.parametrize("page_size", [0, 16, 32, 64, 128, 192, 256, 4096])
@pytest.mark.parametrize("ragged", [False, True])
def test_ragged_and_paged_configs_are_values(ragged, page_size):
    config = MhaConfigV2(8, 2, ragged=ragged, page_size=page_size, sink=True, lse=True)
    assert MhaConfigV2.from_fields(config.to_fields()) == config
    text = {name: str(value) for name, value in config.to_fields().items()}
    assert MhaConfigV2.from_fields(text) == config
    assert config.by_sequence == (ragged or page_size > 0)
    if page_size:
        sizes = [config.pages(keys) for keys in (0, 1, page_size, page_size + 1)]
        assert sizes == [0, 1, 1, 2]


def test_without_a_word_a_problem_is_dense_and_plain():
    fields = MhaConfigV2(8, 2).to_fields()
    plain = {"ragged": False, "page_size": 0, "sink": False, "lse": False}
    assert {name: fields[name] for name in plain} == plain


def test_fields_are_parsed_from_text():
    config = MhaConfigV2.from_fields(
        {
            "num_heads": "8",
            "num_kv_heads": " 2 ",
            "mask": "sliding_window_causal[512]",
            "rescale_threshold": "4.5",
            "fp8_mma_k_128": "no",
            "output_dtype": "fp32",
        }
    )
    assert config == MhaConfigV2(
        8, 2, mask=SlidingWindowCausal(512), rescale_threshold=4.5, output_dtype="fp32"
    )


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"num_head": 8}, ["no field 'num_head'", "did you mean num_heads?", "num_kv_heads"]),
        ({"num_heads": "eight"}, ["num_heads='eight'", "an integer"]),
        ({"num_heads": "8.0"}, ["num_heads='8.0'", "an integer"]),
        ({"rescale_threshold": "high"}, ["rescale_threshold='high'", "a number"]),
        ({"fp8_mma_k_128": "maybe"}, ["fp8_mma_k_128='maybe'", "true or false"]),
    ],
)
def test_bad_fields_are_refused_by_name(fields, words):
    with pytest.raises(ConfigError) as caught:
        MhaConfigV2.from_fields({"num_heads": 8, "num_kv_heads": 2, **fields})
    for word in words:
        assert word in str(caught.value)


def test_missing_fields_are_named():
    with pytest.raises(ConfigError, match="needs num_heads and num_kv_heads"):
        MhaConfigV2.from_fields({"depth": 64})


def test_every_field_is_plain_in_to_fields():
    fields = MhaConfigV2(8, 2, mask="chunked_causal[7]").to_fields()
    assert set(fields) == {field.name for field in dataclasses.fields(MhaConfigV2)}
    assert fields["mask"] == "chunked_causal[7]"
    assert all(isinstance(value, int | float | str | bool) for value in fields.values())


def test_configs_are_values():
    assert MhaConfigV2(8, 2) == MhaConfigV2(8, 2, mask=Causal())
    assert len({MhaConfigV2(8, 2), MhaConfigV2(8, 2, mask="causal"), MhaConfigV2(8, 4)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        MhaConfigV2(8, 2).depth = 64


@pytest.mark.parametrize("heads, kv_heads", [(1, 1), (4, 1), (8, 2), (6, 3), (32, 8), (5, 5)])
def test_head_remap_is_a_bijection_that_spreads_kv_heads(heads, kv_heads):
    config = MhaConfigV2(heads, kv_heads)
    mapped = [config.head_of(x) for x in range(heads)]
    assert sorted(mapped) == list(range(heads))
    # The contract's formulas, spelled out.
    group = heads // kv_heads
    assert mapped == [(x % group) * kv_heads + x // group for x in range(heads)]
    assert [config.kv_head_of(h) for h in range(heads)] == [h // group for h in range(heads)]


def test_strides_tiles_and_grid():
    config = MhaConfigV2(8, 2)
    assert (config.q_tile, config.threads, config.group) == (256, 512, 4)
    assert (config.q_row_stride, config.kv_row_stride) == (1024, 256)
    assert (config.element_bytes, config.output_bytes, config.k_sub_blocks) == (2, 2, 8)
    assert config.grid(513, 3) == (8, 3, 3)
    shape = {"seq_len": 500, "start_pos": 0, "num_keys": 500}
    assert config.tiles(0, **shape) == range(4)
    assert config.tiles(1, **shape) == range(8)
    assert config.tiles(0, seq_len=5, start_pos=60, num_keys=65) == range(2)
    assert config.tiles(0, seq_len=4, start_pos=60, num_keys=65) == range(1)
    windowed = MhaConfigV2(8, 2, mask="sliding_window_causal[65]")
    assert windowed.tiles(1, **shape) == range(3, 8)
    with pytest.raises(ConfigError, match=r"query tile 2 is not in 0 \.\. 1"):
        config.tiles(2, **shape)

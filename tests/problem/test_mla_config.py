"""The MLA prefill problem: every field's limits, and the geometry that follows from them."""

import pytest

from mlagen.attention.masks import Causal, SlidingWindowCausal
from mlagen.errors import ConfigError
from mlagen.families.mla_prefill.problem import MlaConfigV2


def test_defaults():
    config = MlaConfigV2(16, 16)
    assert (config.depth, config.d_rope, config.d_qk) == (128, 64, 192)
    assert (config.cache_depth, config.rope_cache_offset) == (576, 512)
    assert (config.q_block_size, config.kv_block, config.num_warps) == (32, 128, 8)
    assert (config.dtype, config.output_dtype, config.rescale_threshold) == ("bf16", "fp32", 8.0)
    assert config.mask == Causal() and config.kv_form == "k_and_v"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"num_kv_heads": 5}, "num_heads=16 is not a multiple of num_kv_heads=5"),
        ({"num_kv_heads": 0}, "not in 1 .. 65535"),
        ({"num_heads": True}, "not an integer"),
        ({"depth": 64}, "depth=64, d_rope=64"),
        ({"d_rope": 32}, "d_rope=32"),
        ({"d_qk": 576}, "d_qk=576 is not depth + d_rope = 128 + 64"),
        ({"kv_block": 96}, "kv_block=96"),
        ({"dtype": "fp8_e4m3", "kv_block": 64}, "kv_block is 128 for fp8_e4m3"),
        ({"dtype": "fp8_e4m3", "kv_block": 96}, "kv_block=96 is not supported with dtype=fp8"),
        ({"dtype": "fp8_e5m2"}, "dtype=fp8_e5m2"),
        ({"output_dtype": "fp16"}, "output_dtype=fp16"),
        ({"q_block_size": 16}, "32x32 MFMA"),
        ({"num_warps": 4}, "num_warps=4"),
        ({"fp8_mma_k_128": True}, "16x16x128"),
        ({"rescale_threshold": -1}, "must be finite and not negative"),
        ({"rescale_threshold": float("nan")}, "must be finite"),
        ({"dtype": "fp8_e4m3", "rescale_threshold": 8.9}, "e4m3 ends at 448"),
        ({"page_size": 24}, "page_size=24"),
        ({"page_size": -64}, "page_size=-64"),
        ({"page_size": 2**24, "num_kv_heads": 16}, "32 bits"),
        ({"mask": "diagonal"}, "unknown mask"),
        ({"mask": 3}, "neither a Mask"),
        ({"ragged": 1}, "not true or false"),
        ({"kv_form": "v_first"}, "kv_form=v_first"),
        ({"cache_depth": 640}, "kv_form=k_and_v has no latent rows"),
        ({"kv_form": "latent", "rope_cache_offset": 520}, "520 .. 583"),
        ({"kv_form": "latent", "rope_cache_offset": 64}, "after its first 128 columns"),
        ({"kv_form": "latent", "cache_depth": 128, "rope_cache_offset": 128}, "128 .. 191"),
        ({"kv_form": "latent", "rope_cache_offset": 509}, "16 divides"),
        ({"kv_form": "latent", "cache_depth": 584, "dtype": "fp8_e4m3"}, "cache_depth=584"),
    ],
)
def test_refused(fields, said):
    with pytest.raises(ConfigError, match=None) as error:
        MlaConfigV2(**{"num_heads": 16, "num_kv_heads": 16, **fields})
    assert said in str(error.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"num_kv_heads": 1},
        {"num_kv_heads": 8},
        {"kv_block": 64},
        {"dtype": "fp8_e4m3", "rescale_threshold": 8.8},
        {"rescale_threshold": 20.0},
        {"page_size": 1},
        {"page_size": 16},
        {"page_size": 192},
        {"mask": "chunked_causal[100]", "ragged": True, "lse": True},
        {"kv_form": "latent", "cache_depth": 640, "rope_cache_offset": 128},
        {"kv_form": "latent", "cache_depth": 584},
    ],
)
def test_accepted_and_read_back(fields):
    config = MlaConfigV2(**{"num_heads": 16, "num_kv_heads": 16, **fields})
    assert MlaConfigV2.from_fields(config.to_fields()) == config
    assert MlaConfigV2.from_fields({n: str(v) for n, v in config.to_fields().items()}) == config


def test_text_of_fields():
    config = MlaConfigV2.from_fields(
        {"num_heads": "32", "num_kv_heads": "1", "mask": "sliding_window_causal[9]"}
    )
    assert config.mask == SlidingWindowCausal(9)
    with pytest.raises(ConfigError, match="did you mean kv_block"):
        MlaConfigV2.from_fields({"num_heads": 1, "num_kv_heads": 1, "kv_blocks": 64})


@pytest.mark.parametrize(
    ("form", "strides"),
    [("k_and_v", (192 * 2, 128 * 2)), ("nope_rope", (256, 256)), ("latent", (1152, 1152))],
)
def test_strides(form, strides):
    config = MlaConfigV2(8, 2, kv_form=form)
    assert (config.k_row_stride, config.v_row_stride) == strides


def test_tiles_and_heads():
    config = MlaConfigV2(8, 2, mask="causal")
    assert config.grid(257, 3) == (8, 2, 3)
    assert config.tiles(1, seq_len=300, start_pos=100, num_keys=390) == range(4)
    assert sorted(config.head_of(x) for x in range(8)) == list(range(8))
    assert [config.kv_head_of(head) for head in range(8)] == [0] * 4 + [1] * 4

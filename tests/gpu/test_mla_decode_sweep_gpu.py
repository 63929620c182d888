"""MLA decode on a Hopper GPU over problems that hypothesis draws: both oracles, poisoned caches,
outputs and workspaces. `--hypothesis-seed` draws others, MLAGEN_SWEEP says how many."""

from __future__ import annotations

import os
from typing import Any

import pytest
from test_mla_decode_gpu import check

import mlagen
from mlagen.attention.latent.made_up import LATENT_KINDS
from mlagen.attention.latent.sm_90a.swap_ab.kernel import is_few
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.ops import MlaDecodeKernel

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies

EXAMPLES = int(os.environ.get("MLAGEN_SWEEP", "6"))
TUNED_HEADS = (8, 12, 16, 24, 32, 40, 64, 128)
CALLS = 3  # of each kernel: building it takes most of the time


@st.composite
def problems(draw: Any) -> dict[str, Any]:
    heads = draw(st.one_of(st.sampled_from(TUNED_HEADS), st.integers(1, 128)))
    mask = draw(st.sampled_from(["causal", "null", "window"]))
    if mask == "window":
        mask = f"sliding_window_causal[{draw(st.integers(1, 400))}]"
    cache = draw(st.sampled_from(["bf16", "bf16", "fp8_e4m3", "fp8_rope_aware"]))
    of_rows = ["fp8_rope_aware"] if cache == "fp8_rope_aware" else []
    divisors = [n for n in range(1, 9) if heads % n == 0 and (n == 1 or cache != "fp8_rope_aware")]
    fields = {
        "num_heads": heads,
        "num_kv_heads": draw(st.one_of(st.just(1), st.sampled_from(divisors))),
        "q_len": draw(st.integers(1, 8)),
        "page_size": draw(st.sampled_from([1, 16, 32, 64, 128, 192, 320])),
        "mask": mask,
        "dtype": draw(st.sampled_from(["bf16", "bf16", "fp8_e4m3", *of_rows])),
        "cache_dtype": cache,
    }
    native = {**fields, "dtype": "fp8_e4m3", "compute": "fp8"}
    few = cache == "fp8_e4m3" and is_few(MlaDecodeConfig(**native))
    if cache == "fp8_e4m3" and (few or fields["page_size"] > 1) and draw(st.booleans()):
        return native
    return fields


LENGTHS = st.lists(
    st.one_of(st.integers(0, 130), st.sampled_from([0, 63, 64, 65]), st.integers(0, 1500)),
    min_size=1,
    max_size=5,
)
PLANS = st.one_of(
    st.just({"blocks": 1}),
    st.builds(lambda n: {"split_keys": 64 * n}, st.integers(1, 6)),
    st.builds(lambda n: {"blocks": n}, st.sampled_from([2, 7, 132])),
)


@hypothesis.settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(hypothesis.HealthCheck),
    phases=[hypothesis.Phase.generate],  # shrinking would build kernels for minutes
)
@hypothesis.given(problems(), st.data())
def test_drawn_problems(fields: dict[str, Any], data: Any) -> None:
    kernel = mlagen.build("mla_decode_sm90", **fields)
    assert isinstance(kernel, MlaDecodeKernel)
    assert isinstance(kernel.config, MlaDecodeConfig)
    for _ in range(CALLS):
        inputs = mla_decode_inputs(
            kernel.config,
            lengths=data.draw(LENGTHS, label="lengths"),
            data=data.draw(st.sampled_from(sorted(LATENT_KINDS)), label="data"),
            seed=data.draw(st.integers(0, 99), label="seed"),
        )
        last = kernel.config.num_heads - 1
        heads = [0, data.draw(st.integers(0, last), label="head")]
        check(kernel, inputs, heads, **data.draw(PLANS, label="plan"))

"""Shapes of tcgen05.mma and the words that describe them."""

from __future__ import annotations

from typing import Any

import pytest

from mlagen.errors import ScheduleError
from mlagen.targets.sm_100a.dsl import Product, matrix_descriptor


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"rows": 96, "columns": 64}, "no product of cta_group 1 of 96 x 64"),
        ({"rows": 128, "columns": 72}, "16 to 256, in steps of 16"),
        ({"rows": 128, "columns": 272}, "16 to 256"),
        ({"rows": 64, "columns": 64, "cta_group": 2}, "rows: 128, 256"),
        ({"rows": 256, "columns": 48, "cta_group": 2}, "32 to 256, in steps of 32"),
        ({"rows": 64, "columns": 192, "weights": True}, "64 to 256, powers of two"),
        ({"rows": 64, "columns": 64, "weights": True, "cta_group": 2}, ".ws is of cta_group 1"),
        ({"rows": 64, "columns": 64, "a": "bf16", "b": "fp16"}, "both the same"),
        ({"rows": 64, "columns": 64, "a": "fp8_e4m3"}, "kind::f8f6f4 has fp8_e4m3, fp8_e5m2"),
        ({"rows": 64, "columns": 64, "a": "fp64", "b": "fp64"}, "a product of fp64"),
        ({"rows": 128, "columns": 64, "a": "mxf4", "b": "mxf4"}, "a product of mxf4"),
        ({"rows": 64, "columns": 64, "sums": "bf16"}, "sums in bf16; kind::f16 has fp16, fp32"),
    ],
)
def test_a_product_that_there_is_not(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        Product(**asked)
    assert says in str(refused.value)


def test_words_are_those_of_other_kernels() -> None:
    """Q K and P V of FlashMLA's sparse prefill for sm_100a, 64 heads and 128, compiled by nvcc."""
    assert Product(64, 128, weights=True).word == 69207184
    assert Product(64, 256, weights=True, b_major="mn").word == 71369872
    assert Product(128, 128, cta_group=2).word == 136316048
    assert Product(128, 256, cta_group=2, b_major="mn").word == 138478736


def test_words_and_instructions() -> None:
    e4m3 = Product(128, 64, a="fp8_e4m3", b="fp8_e5m2", sums="fp16")
    assert e4m3.word == 8 << 24 | 8 << 17 | 1 << 10
    assert e4m3.depth == 32 and Product(128, 64).depth == 16
    assert e4m3.opcode == "tcgen05.mma.cta_group::1.kind::f8f6f4"
    assert matrix_descriptor(leading=16, stride=1024) == 2 << 61 | 1 << 46 | 64 << 32 | 1 << 16


def test_offsets_and_swizzles_that_a_descriptor_does_not_have() -> None:
    for asked in ({"leading": 8, "stride": 1024}, {"leading": 16, "stride": 1 << 18},
                  {"leading": 16, "stride": 1024, "swizzle": 100}):  # fmt: skip
        with pytest.raises(ScheduleError):
            matrix_descriptor(**asked)

"""Numbers of heads change no result over peaked data, by more than what manifests state
(`test_stated_roundings.py`) can do."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sparse_calls import artifact, given

from mlagen.app.build import build_artifact
from mlagen.attention.latent.facts import order_of
from mlagen.attention.latent.order import (
    KEYS_AS_ROWS,
    KEYS_OF_GRAINS,
    SEESAW,
    SEESAW_OF_GRAINS,
    Order,
)
from mlagen.families.mla_decode.exact import exact as exact_decode
from mlagen.families.mla_decode.kernel import decode_kernel
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.verification import order_of as order_of_decode
from mlagen.families.mla_sparse.exact import exact
from mlagen.families.mla_sparse.kernel import sparse_kernel
from mlagen.families.mla_sparse.made_up import mla_sparse_decode_inputs, mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.rounded import rounded as rounding
from mlagen.families.mla_sparse.rows import FORMATS
from mlagen.problem.formats import U_BF16

TARGETS = ("sm90", "sm100", "gfx950")
SHARED = 8  # heads that are the same ones in all calls


def built(name: str, fields: Any, **knobs: Any) -> Any:
    if name.endswith("gfx950"):
        return build_artifact(name, dict(fields), knobs)
    return artifact(name, fields, **knobs)


def sparse(which: str, target: str, heads: int, rows: str, **knobs: Any) -> Any:
    fields = {"num_heads": heads, "rows": rows, "d_qk": FORMATS[rows].widths[0]}
    name = f"mla_sparse_{which}_{target}"
    return sparse_kernel(built(name, fields, **knobs), build=lambda merge, own: built(merge, own))


def peaked(which: str, config: Any) -> Any:
    """A call whose scores are hundreds apart, of which the first heads are the same ones whatever
    their number."""
    make = mla_sparse_prefill_inputs if which == "prefill" else mla_sparse_decode_inputs
    one = replace(config, num_heads=SHARED)
    shape: dict[str, Any] = {"rows": 1} if which == "prefill" else {"batch": 1}
    inputs = make(one, topk=150, cache_rows=256, data="peaked", seed=3, **shape)
    more = -(-config.num_heads // SHARED)
    q = np.concatenate([inputs.q] * more, axis=-2)[..., : config.num_heads, :]
    return replace(inputs, config=config, q=q)


def holds(o: Any, values: Any, bounds: Any, times: float = 1.0) -> bool:
    """Whether bf16 numbers are within bounds."""
    return bool((np.abs(o - values) <= times * bounds + U_BF16 * (np.abs(values) + bounds)).all())


def answer(which: str, made: Any) -> tuple[Any, Any, Any]:
    """O of the shared heads, and what the exact oracle says of them, with its bound."""
    inputs = peaked(which, made.config)
    more = {} if which == "prefill" else {"splits": 1}
    o = np.asarray(made(**given(inputs), **more)[0]).astype(np.float64)
    heads = list(range(SHARED))
    expected = exact(inputs, heads=heads, order=order_of(made.artifact)).output
    o = o.reshape((*expected.values.shape[:2], made.config.num_heads, -1))[:, :, :SHARED]
    return o, expected.values, expected.bounds


CASES = [
    (which, target, rows)
    for which in ("prefill", "decode") for target in TARGETS for rows in FORMATS
]  # fmt: skip


# Numbers of heads, one of each schedule; those of v32 on Hopper are of five.
COUNTS = {("sm90", "v32"): (8, 20, 32, 64, 128)}


@pytest.mark.parametrize(("which", "target", "rows"), CASES)
def test_heads_change_no_result(which: str, target: str, rows: str) -> None:
    """Peaked scores: two numbers of heads are apart by no more than what both state."""
    counts = COUNTS.get((target, rows), (8, 64))
    found = [answer(which, sparse(which, target, n, rows)) for n in counts]
    for answered in found:
        assert holds(*answered)
    # Both are rounded to bf16.
    for few, many in itertools.combinations(found, 2):
        assert holds(few[0], many[0], few[2] + many[2] + U_BF16 * (np.abs(few[1]) + few[2]))


@pytest.mark.parametrize(
    ("heads", "own", "wide"),
    [(32, KEYS_OF_GRAINS, KEYS_AS_ROWS), (64, SEESAW_OF_GRAINS, SEESAW),
     (128, SEESAW_OF_GRAINS, SEESAW)],
    ids=["32", "64", "128"],
)  # fmt: skip
def test_grains_round_less(heads: int, own: Order, wide: Order) -> None:
    """Rows of 17 and more heads are rounded to f16: what rounds them to bf16 exceeds that bound."""
    made = sparse("decode", "sm90", heads, "v32")
    assert order_of(made.artifact) == own
    o, values, bound = answer("decode", made)
    assert holds(o, values, bound)
    inputs = peaked("decode", made.config)
    coarse = rounding(inputs, heads=list(range(SHARED)), order=wide).output.values
    assert not holds(coarse, values, bound, 2.0)


@pytest.mark.parametrize("cache", ["fp8_e4m3", "fp8_rope_aware"])
@pytest.mark.parametrize("target", TARGETS)
def test_heads_change_no_decode(target: str, cache: str) -> None:
    found = []
    for heads in (8, 64):
        fields = {"num_heads": heads, "cache_dtype": cache}
        made = decode_kernel(
            built(f"mla_decode_{target}", fields), build=lambda merge, own: built(merge, own)
        )
        one = replace(made.config, num_heads=SHARED)
        inputs = mla_decode_inputs(one, lengths=[150], data="randn", seed=5, scale=8 * 576**-0.5)
        q = np.concatenate([inputs.q] * (heads // SHARED), axis=-2)
        inputs = replace(inputs, config=made.config, q=q)
        o, _ = made(
            inputs.q, inputs.cache, inputs.block_table, inputs.cache_lengths, scale=inputs.scale,
            **{n: getattr(inputs, n) for n in ("kv_scale", "kv_scales")
               if getattr(inputs, n, None) is not None},
        )  # fmt: skip
        order = order_of_decode(made.artifact)
        expected = exact_decode(inputs, heads=list(range(SHARED)), order=order).output
        own = np.asarray(o).astype(np.float64)[:, :, :SHARED]
        assert holds(own, expected.values, expected.bounds)
        found.append((own, expected.bounds))
    (few, of_few), (many, of_many) = found
    assert holds(few, many, of_few + of_many)

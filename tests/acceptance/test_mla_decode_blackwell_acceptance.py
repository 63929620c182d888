"""Published shapes of dense decoding for sm_100a, in the emulator: the plan of the whole batch, of
which some sequences' items and merges run; by both oracles and by the published tolerance."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from mlagen.artifact import Artifact
from mlagen.attention.latent.facts import order_of
from mlagen.codegen import build
from mlagen.families.mla_decode.benchmark.judge import outside_oracles
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.kernel import decode_kernel
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.plan import MlaDecodeWork, plan_work
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.unit import unit_of
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.launch import EmulatedLauncher
from mlagen.problem.formats import BF16, scale_log2e

pytestmark = pytest.mark.acceptance

ATOL, RTOL = 1e-1, 1e-3
# Sequences, keys, new tokens.
SHAPES = (
    *((batch, 50, q_len) for batch in (27, 128) for q_len in range(1, 9)),
    *((batch, 4096, q_len) for batch in (27, 128) for q_len in (1, 2)),
    *((batch, 1024, q_len) for batch in (27, 128) for q_len in (3, 4)),
    (1, 32768, 1), (1, 65536, 1),
)  # fmt: skip
E4M3 = {"cache_dtype": "fp8_e4m3"}
STORED: tuple[dict[str, Any], ...] = (
    E4M3,
    {"cache_dtype": "fp8_rope_aware"},
    {**E4M3, "dtype": "fp8_e4m3", "compute": "fp8"},
)


@lru_cache(maxsize=4)
def built(config: MlaDecodeConfig) -> Artifact:
    return build("mla_decode_sm100", config)


@lru_cache(maxsize=4)
def merge(heads: int) -> Artifact:
    return build("mla_decode_merge_sm100", MlaDecodeMergeConfig(heads))


def launch(
    artifact: Artifact, tensors: dict[str, Any], numbers: dict[str, Any], **sizes: int
) -> None:
    """Without a finding."""
    args, launcher = artifact.manifest.args, EmulatedLauncher()
    report = launcher.launch(
        artifact, tensors={arg.tensor: tensors[arg.tensor] for arg in args if arg.tensor},
        scalars={arg.name: numbers[arg.name] for arg in args if not arg.tensor}, sizes=sizes,
    )  # fmt: skip
    assert report.emulation is not None and not report.emulation.findings


def of_some(work: MlaDecodeWork, chosen: list[int], rows: int) -> MlaDecodeWork:
    """The items and merges of these sequences of `rows` query rows each, of which the others' are
    left out: the places of q, slots and outputs are those of the call."""
    items = work.items[np.isin(work.items[:, 0], chosen)]
    return replace(
        work, items=items, merges=work.merges[np.isin(work.merges[:, 2] // rows, chosen)]
    )


def check(config: MlaDecodeConfig, batch: int, keys: int) -> None:
    """The first, a middle and the last sequence of a batch of equal ones."""
    artifact, heads, q_len = built(config), config.num_heads, config.q_len
    chosen = sorted({0, batch // 2, batch - 1})
    made = mla_decode_inputs(config, lengths=(keys,) * len(chosen), data="randn", seed=keys)
    unit = unit_of(artifact.manifest)
    whole = plan_work(config, [keys] * batch, unit=unit)
    work = of_some(whole, chosen, heads * q_len)
    given = dict(made.tensors)
    for name in ("q", "block_table", "cache_lengths", "q_scales"):
        if name in given:
            some = given[name]
            given[name] = np.zeros((batch, *some.shape[1:]), some.dtype)
            given[name][chosen] = some
    o = np.full((batch, q_len, heads, 512), np.nan, BF16)
    lse = np.full((batch, heads, q_len), np.nan, np.float32)
    slots = max(work.slots, 1)
    tensors = {
        **given, "items": work.items, "merges": work.merges, "o": o.reshape(-1, 512),
        "lse": lse.reshape(-1), "partial_o": np.full((slots, unit.rows, 512), np.nan, np.float32),
        "partial_lse": np.full((slots, unit.rows), np.nan, np.float32),
    }  # fmt: skip
    numbers = {
        "max_pages": made.max_pages, "num_blocks": made.num_blocks, "kv_scale": made.kv_scale,
        "lse_stride": work.lse_stride, "scale_log2e": scale_log2e(made.score_scale),
        "slot_rows": unit.rows,
    }  # fmt: skip
    launch(artifact, tensors, numbers, **unit.grid(len(work.items)))
    if len(work.merges):
        launch(merge(heads), tensors, numbers, merges=len(work.merges))
    others = np.delete(np.arange(batch), chosen)
    assert np.isnan(o[others].astype(np.float32)).all() and np.isnan(lse[others]).all()
    some_heads, order = sorted({0, heads // 2, heads - 1}), order_of(artifact)
    splits = tuple(whole.splits[b] for b in chosen)
    wrong = outside_oracles(
        made, o[chosen], lse[chosen], heads=some_heads, splits=splits, order=order
    )
    assert not wrong, wrong
    if config.compute == "bf16":  # P of e4m3 is less accurate than what is published
        want = exact(made, heads=some_heads, splits=splits, order=order).output.values
        error = np.abs(o[chosen][:, :, some_heads].astype(np.float64) - want)
        assert (error <= ATOL + RTOL * np.abs(want)).all()


@pytest.mark.parametrize(("batch", "keys", "q_len"), SHAPES)
@pytest.mark.parametrize("heads", [128, 16])
def test_published_shapes(heads: int, batch: int, keys: int, q_len: int) -> None:
    check(MlaDecodeConfig(heads, q_len=q_len), batch, keys)


@pytest.mark.parametrize("fields", STORED, ids=str)
@pytest.mark.parametrize(("batch", "keys", "q_len"), [(27, 50, 8), (128, 1024, 3), (1, 8192, 1)])
@pytest.mark.parametrize("heads", [128, 16])
def test_stored_types(
    heads: int, batch: int, keys: int, q_len: int, fields: dict[str, Any]
) -> None:
    check(MlaDecodeConfig(heads, q_len=q_len, **fields), batch, keys)


@pytest.mark.parametrize("heads", [128, 16])
def test_no_sequences(heads: int) -> None:
    config = MlaDecodeConfig(heads)
    made = mla_decode_inputs(config, lengths=(50,), data="randn")
    none = {
        name: made.tensors[name][:0] for name in ("q", "block_table", "cache_lengths")
    }  # fmt: skip
    o, lse = decode_kernel(built(config))(**{**made.tensors, **none}, scale=made.scale)
    assert o.shape == (0, 1, heads, 512) and lse.shape == (0, heads, 1)

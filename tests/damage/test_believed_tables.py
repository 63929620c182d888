"""Tables of kernels that believe them, whose arguments are AITER's: the host's checks refuse what
is damaged, or the emulator finds nothing wrong in what it does."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlagen.app.build import build_artifact
from mlagen.attention.prefill.plan import WorkPlan
from mlagen.compat import aiter
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.aiter_plan import aiter_arrays, plan_aiter
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_prefill.call import plan_inputs
from mlagen.families.mla_prefill.kernel import MlaPrefillKernel
from mlagen.families.mla_prefill.made_up import mla_prefill_inputs
from mlagen.families.split_merge.prefill_made_up import mla_reduce_inputs
from mlagen.families.split_merge.prefill_problem import MlaReduceConfig
from mlagen.ops import aiter_decode

EACH = 3000 if os.environ.get("MLAGEN_ACCEPTANCE") else 60
MAPS = "reduce_indptr", "reduce_final_map", "reduce_partial_map"
FAR = -1, -(2**31), 2**31 - 1
Array = np.ndarray[Any, Any]
Tables = Mapping[str, Array]


def _damaged(rng: random.Random, tables: Tables) -> dict[str, Array]:
    """All tables, of which one is not what it was."""
    made = {name: table.copy() for name, table in tables.items()}
    name = rng.choice(list(made))
    table, how = made[name], rng.choice(("one", "one", "two", "cut", "added", "swapped"))
    flat = table.reshape(-1)
    if how == "cut":
        made[name] = table[: rng.randrange(len(table))].copy()
    elif how == "added":
        made[name] = np.concatenate([table, np.full_like(table[-1:], rng.choice((0, 1, -1, 99)))])
    elif how == "swapped":
        at = [rng.randrange(flat.size), rng.randrange(flat.size)]
        flat[at] = flat[at[::-1]]
    else:
        for _ in range(2 if how == "two" else 1):
            place, few = rng.randrange(flat.size), rng.randrange(900)
            old = int(flat[place])
            near = old + 1, old - 1, old + 64, 2 * old + 1, few, -old, old ^ 1 << rng.randrange(31)
            flat[place] = np.int64(rng.choice((*FAR, *near))).astype(np.int32)
    return made


def _attack(tables: Tables, call: Callable[[Tables], object], seed: int) -> None:
    """Each damaged call ends in a ConfigError or in a result; `call` raises what else is found."""
    call({name: table.copy() for name, table in tables.items()})
    rng, refused = random.Random(seed), 0
    for _ in range(EACH):
        try:
            call(_damaged(rng, tables))
        except ConfigError:
            refused += 1
    assert EACH // 3 < refused < EACH


@pytest.mark.parametrize("page_size", [1, 16])
def test_decode(page_size: int) -> None:
    config = MlaDecodeConfig(16, q_len=2, page_size=page_size)
    inputs = mla_decode_inputs(config, lengths=[300, 70, 5, 0], seed=1)
    plan = plan_aiter(config, inputs.cache_lengths, workgroups=3, split_keys=128)
    given = aiter_arrays(inputs)
    names = "qo_indptr", "kv_indptr", "kv_page_indices", "kv_last_page_lens"
    work = "work_indptr", "work_info_set", *MAPS
    tables = {name: given[name] for name in names} | {name: getattr(plan, name) for name in work}

    def call(t: Tables) -> None:
        o = np.zeros((len(given["q"]), 16, 512), given["q"].dtype)
        first = (given["q"], given["cache"], o, *(t[name] for name in names), 2, page_size)
        aiter.mla_decode_fwd(*first, **{name: t[name] for name in work})

    _attack(tables, call, page_size)


def test_reduce() -> None:
    made = mla_reduce_inputs(MlaReduceConfig(num_heads=4), seq_len=[300, 77], workgroups=6)

    def call(t: Tables) -> None:
        o = np.zeros((made.rows, 4, 128), np.float32)
        maps = [t[name] for name in MAPS]
        aiter.mla_reduce_v1(made.partial_o, made.partial_lse, *maps, 256, 0, o)

    _attack({name: getattr(made, name) for name in MAPS}, call, 2)


@pytest.mark.parametrize("arguments", ["mlagen", "aiter"])
def test_prefill(arguments: str) -> None:
    fields = {"num_heads": 2, "num_kv_heads": 2, "mask": "causal", "ragged": True}
    if arguments == "aiter":
        fields |= {"dtype": "fp8_e4m3", "output_dtype": "bf16", "page_size": 1}
    knobs = {"grid": "persistent", "arguments": arguments}
    kernel = MlaPrefillKernel(build_artifact("mla_prefill_v2", fields, knobs), workgroups=6)
    quantise = kernel.config.dtype != "bf16"
    inputs = mla_prefill_inputs(kernel.config, lengths=[300, 70], quantise=quantise)
    plan = plan_inputs(inputs, 6, listed=kernel.takes_aiters_arguments)
    names = "work_indptr", "work_info", *MAPS

    def call(t: Tables) -> None:
        damaged: WorkPlan = replace(plan, **t)
        report = kernel.run(inputs, plan=damaged).report
        assert report is not None and report.emulation is not None
        assert not report.emulation.findings

    _attack({name: getattr(plan, name) for name in names}, call, 3)


def test_numbers_and_addresses_beside_the_tables() -> None:
    """`max_seqlen_q` below a sequence's tokens, and a `work_meta_data` that is not the work's."""
    config = MlaDecodeConfig(16, q_len=2, page_size=1)
    inputs = mla_decode_inputs(config, lengths=[70, 5], seed=1)
    plan, given = plan_aiter(config, inputs.cache_lengths, workgroups=2), aiter_arrays(inputs)
    kernel = aiter_decode._decode(config)
    names = "q", "cache", "qo_indptr", "kv_indptr", "kv_page_indices", "kv_last_page_lens"
    tensors = [*(given[name] for name in names), plan.work_indptr, plan.work_info_set]
    parts = {
        "partial_o": np.zeros((1, 16, 512), np.float32),
        "partial_lse": np.zeros((1, 16), np.float32),
    }
    kernel(*tensors, scale=0.1, max_seqlen_q=2, **parts)
    with pytest.raises(ConfigError, match="max_seqlen_q=1, but a sequence has 2 query tokens"):
        kernel(*tensors, scale=0.1, max_seqlen_q=1, **parts)
    for table, said in (
        (np.array([1 << 40, 1 << 41]), "holds the addresses 0x10000000000 and 0x20000000000"),
        (np.zeros(1, np.int64), "has 1 numbers of dtype int64"),
        (np.zeros(2, np.int32), "has 2 numbers of dtype int32"),
    ):
        with pytest.raises(ConfigError, match=f"work_meta_data {said}"):
            kernel(*tensors, scale=0.1, work_meta_data=table, **parts)

"""Cases of MHA prefill: sequences of any lengths in any form, run in the emulator and judged.

What a kernel must not touch is poison here: rows of K and V that are no keys are NaN, so are pages
that no sequence owns, and the page table's unused entries point far past the pool.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from mlagen.artifact import Artifact
from mlagen.attention.prefill.exact import exact
from mlagen.attention.prefill.rounded import rounded
from mlagen.emulator import EmulationResult, Mode
from mlagen.families.mha_prefill.inputs import MhaInputs
from mlagen.families.mha_prefill.kernel import MhaKernel
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.launch import EmulatedLauncher
from mlagen.problem.expected import compare

BF16 = ml_dtypes.bfloat16
GARBAGE_PAGE = 0x7FFFFFF0  # a page number that no pool has


@dataclass(frozen=True)
class Case:
    """Sequences (rows, start position, keys). `climb`: row maxima grow from tile to tile by more
    than the rescale threshold; `sinks`: natural units, by head, repeated as needed."""

    sequences: tuple[tuple[int, int, int], ...]
    climb: bool = True
    sinks: tuple[float, ...] = (0.5, -1.0, 9.0, -np.inf)
    seed: int = 0


@dataclass(frozen=True)
class Result:
    """What one mode gave: outputs as the kernel stored them, and the emulator's report."""

    output: np.ndarray
    lse: np.ndarray | None
    emulation: EmulationResult


def make_inputs(config: MhaConfigV2, case: Case) -> MhaInputs:
    """Tensors of a case in the form of `config`."""
    rng = np.random.default_rng(case.seed)
    heads, kv_heads, depth = config.num_heads, config.num_kv_heads, config.depth
    scale = depth**-0.5
    direction = rng.standard_normal((kv_heads, depth))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    queries, keys, values = [], [], []
    for rows, _, count in case.sequences:
        q = rng.standard_normal((rows, heads, depth))
        if case.climb:
            q += 4.0 * np.repeat(direction, config.group, axis=0)
        k = rng.standard_normal((count, kv_heads, depth))
        if case.climb:
            level = 12.0 * ((np.arange(count) + 59) // 64 - 1) / (4.0 * scale * np.log2(np.e))
            k += level[:, None, None] * direction
        queries.append(q.astype(BF16))
        keys.append(k.astype(BF16))
        values.append(rng.standard_normal((count, kv_heads, depth)).astype(BF16))
    batch = len(case.sequences)
    start = np.array([start for _, start, _ in case.sequences], np.int32)
    lengths = np.array([count for _, _, count in case.sequences], np.int32)
    arrays: dict[str, object] = {"start_pos": start}
    if config.ragged:
        q = np.concatenate(queries)
        arrays["q_offsets"] = _offsets([len(x) for x in queries])
    else:
        q = np.stack(queries)
    if config.page_size:
        k, v, table = _pool(config, rng, keys, values)
        arrays |= {"kv_lengths": lengths, "page_table": table}
    elif config.ragged:
        k, v = np.concatenate(keys), np.concatenate(values)
        arrays["kv_offsets"] = _offsets([len(x) for x in keys])
    else:
        k, v = np.stack(keys), np.stack(values)
        arrays["start_pos"] = int(start[0])
        assert len(set(start.tolist())) == 1 and batch >= 1
    if config.sink:
        arrays["sinks"] = np.resize(np.array(case.sinks, np.float32), heads)
    return MhaInputs(config, q, k, v, scale, **arrays)


def _offsets(lengths: list[int]) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)


def _pool(
    config: MhaConfigV2, rng: np.random.Generator, keys: list[np.ndarray], values: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pools with the sequences' pages in random places, and their page table."""
    size = config.page_size
    used = [config.pages(len(k)) for k in keys]
    total = sum(used) + 3
    places = rng.permutation(total)
    shape = (total, size, config.num_kv_heads, config.depth)
    k_pool, v_pool = (np.full(shape, np.nan, BF16) for _ in range(2))
    table = np.full((len(keys), max(max(used), 1)), GARBAGE_PAGE, np.int32)
    at = 0
    for b, count in enumerate(used):
        for page in range(count):
            place = int(places[at])
            table[b, page] = place
            rows = keys[b][page * size : (page + 1) * size]
            k_pool[place, : len(rows)] = rows
            v_pool[place, : len(rows)] = values[b][page * size : (page + 1) * size]
            at += 1
    return k_pool, v_pool, table


def run(artifact: Artifact, inputs: MhaInputs, mode: Mode = "latest", seed: int = 0) -> Result:
    """One run in the emulator."""
    done = MhaKernel(artifact, EmulatedLauncher(mode=mode, seed=seed)).run(inputs)
    assert done.report is not None and done.report.emulation is not None
    return Result(done.output, done.lse, done.report.emulation)


def judge(
    artifact: Artifact, inputs: MhaInputs, modes: tuple[Mode, ...] = ("latest", "earliest")
) -> Result:
    """Runs in all modes: without findings, the same bits, right by both oracles."""
    results = [run(artifact, inputs, mode) for mode in modes]
    first = results[0]
    for result in results:
        assert not result.emulation.findings, result.emulation.findings[0]
        assert first.output.tobytes() == result.output.tobytes()
        assert first.lse is None or first.lse.tobytes() == result.lse.tobytes()
    for oracle in (exact(inputs), rounded(inputs)):
        held = compare(oracle.output, inputs.output_view(first.output))
        assert held.passed, (held.oracle, held.failures, held.worst)
        if first.lse is not None:
            held = compare(oracle.lse, inputs.lse_view(first.lse))
            assert held.passed, (held.oracle, held.failures, held.worst)
    return first

"""`mlagen simulate` makes the data that the simulated workgroups read, and no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlagen.problem.arrays as arrays
from mlagen.app.build import build_artifact
from mlagen.app.cycle_jobs import spread
from mlagen.artifact import Artifact
from mlagen.attention.prefill.verification import PrefillKind
from mlagen.launch import EmulatedLauncher
from mlagen.verify import kind_of

Group = tuple[int, int, int]
POISON = 0xFF  # NaN in all formats of the inputs
MHA = {"num_heads": 8, "num_kv_heads": 2}
MLA = {"num_heads": 4, "num_kv_heads": 4}
RAGGED = {"lengths": [300, 270, 260], "num_keys": [500, 270, 400], "start_pos": [0, 0, 0]}
SPARSE = {"topk": 130, "cache_rows": 256}
# Kernel, fields, sizes of a call, and the outputs that three workgroups write of it.
CALLS: tuple[tuple[str, dict[str, Any], dict[str, Any], int], ...] = (
    ("mla_decode_gfx950", {"num_heads": 16}, {"lengths": [70, 300, 5, 129, 64]}, 3 * 16),
    ("mla_decode_gfx950", {"num_heads": 16, "page_size": 1, "cache_dtype": "fp8_rope_aware"},
     {"lengths": [70, 300, 5, 129]}, 3 * 16),
    ("mla_decode_gfx950", {"num_heads": 16, "persistent": 1},
     {"lengths": [70, 300, 5, 129], "blocks": 3}, 4 * 16),
    ("mla_decode_gfx950",
     {"num_heads": 16, "persistent": 1, "arguments": "aiter", "page_size": 1},
     {"lengths": [70, 300, 5, 129], "blocks": 3}, 4 * 16),
    ("mha_prefill_v2", MHA, {"batch": 3, "seq_len": 300}, 256 + 44 + 44),
    ("mha_prefill_v2", MHA | {"ragged": True, "mask": "causal"}, RAGGED, 256 + 14 + 4),
    ("mha_prefill_v2", MHA | {"page_size": 64}, {"batch": 3, "seq_len": 100, "num_keys": 200}, 300),
    ("mla_prefill_v2", MLA, {"batch": 3, "seq_len": 300}, 256 + 44 + 44),
    ("mla_prefill_v2", MLA | {"kv_form": "nope_rope"}, {"batch": 3, "seq_len": 100}, 300),
    ("mla_prefill_v2", MLA | {"num_kv_heads": 1, "kv_form": "latent"}, {"batch": 3}, 768),
    ("mla_sparse_decode_gfx950", {"num_heads": 16}, {"batch": 6, **SPARSE}, 3 * 16),
    ("mla_sparse_prefill_gfx950", {"num_heads": 16}, {"rows": 6, **SPARSE}, 3 * 16),
)  # fmt: skip


def _chosen(grid: Group) -> Sequence[Group]:
    return spread(grid, 3)


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody makes is NaN, and not zero."""
    real = arrays._pages

    def pages(size: int) -> Any:
        made = real(size)
        made.fill(POISON)
        return made

    monkeypatch.setattr(arrays, "_pages", pages)


def _written(artifact: Artifact, inputs: Any, groups: Callable[[Group], Sequence[Group]]) -> int:
    """Rows of O, of 512 or 128 columns, that are numbers after these workgroups have run."""
    emulator = EmulatedLauncher(sanitize=False, workgroups=groups, threads=1)
    trial = kind_of(artifact).trial(inputs).uncompared()
    outputs, _ = trial.run(artifact, emulator)
    o = outputs["o"].astype(np.float32)
    return int(np.isfinite(o).all(axis=-1).sum())


@pytest.mark.parametrize("kernel, fields, sizes, rows", CALLS)
def test_what_is_simulated_reads_what_is_made(
    kernel: str, fields: dict[str, Any], sizes: dict[str, Any], rows: int, poisoned: None
) -> None:
    artifact = build_artifact(kernel, fields, {})
    made = kind_of(artifact).simulated(artifact, _chosen, seed=0, **sizes)
    assert _written(artifact, made, _chosen) == rows


def test_other_workgroups_read_nothing_that_is_made(poisoned: None) -> None:
    artifact = build_artifact("mla_decode_gfx950", {"num_heads": 16}, {})
    made = kind_of(artifact).simulated(artifact, _chosen, seed=0, lengths=[70, 300, 5, 129, 64])
    assert _written(artifact, made, lambda grid: [(1, 0, 0), (3, 0, 0)]) == 0


def _resident() -> int:
    """Bytes of memory that this process has touched."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize(
    "kernel, fields, sizes, whole",
    [
        ("mla_decode_gfx950", {"num_heads": 16}, {"lengths": [4096] * 512}, 2.4e9),
        (
            "mha_prefill_v2",
            {"num_heads": 64, "num_kv_heads": 64},
            {"batch": 64, "seq_len": 1024},
            3.2e9,
        ),
    ],
)
def test_a_large_call_takes_little_memory(
    kernel: str, fields: dict[str, Any], sizes: dict[str, Any], whole: float
) -> None:
    artifact = build_artifact(kernel, fields, {})
    before = _resident()
    made = kind_of(artifact).simulated(artifact, _chosen, seed=0, **sizes)
    held = _resident() - before
    of_call = made.q.nbytes + made.k.nbytes + made.v.nbytes if isinstance(
        kind_of(artifact), PrefillKind) else made.inputs.cache.nbytes  # fmt: skip
    assert of_call > whole and held < 0.05 * whole

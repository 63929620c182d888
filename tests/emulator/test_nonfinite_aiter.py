"""The tracer on a defect of others: AITER's fp8 decode kernel before and after pull request 2106.

Before it, the mask of a short tail was computed in v18 .. v21, which hold the LDS addresses of the
K tiles; the third tile was then read from LDS that nothing had filled. `MLAGEN_AITER_HISTORY` names
a folder with `2106p/` (the pull request's parent) and `2106/`, each AITER's `hsa/gfx950` of then.
"""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from mlagen.emulator import Settings
from mlagen.emulator.launching import LaunchRun, parse_launch, run_launch

OBJECT = "hsa/gfx950/mla/mla_a8w8_qh32_qseqlen4_gqaratio32_ps.co"
HEADS, TOKENS, KEYS, DEPTH = 32, 4, 129, 576  # two tiles of 64 keys and one key more
E4M3 = ml_dtypes.float8_e4m3fn
WORK = (1 << 40, 1 << 41)  # addresses of the work tables

POINTERS = {
    0x00: "R", 0x10: "LSE", 0x20: "Q", 0x30: "KV", 0x40: "kv_indptr", 0x50: "pages",
    0x60: "last", 0xD0: "qo_indptr", 0xE0: "work", 0xF0: "output", 0x100: "one", 0x110: "one",
}  # fmt: skip
SCALARS = {
    0x70: ("f32", DEPTH**-0.5), 0x80: ("u32", HEADS * TOKENS), 0x90: ("u32", 1),
    0xA0: ("u32", DEPTH * HEADS * TOKENS), 0xB0: ("u32", DEPTH), 0xC0: ("u32", 0),
}  # fmt: skip


def code_of(name: str) -> bytes:
    named = os.environ.get("MLAGEN_AITER_HISTORY")
    if not named:
        pytest.skip("MLAGEN_AITER_HISTORY names no folder of older AITER objects")
    file = Path(named) / name / OBJECT
    if not file.is_file():
        pytest.skip(f"there is no {file}")
    return file.read_bytes()


def launched(name: str, folder: Path) -> LaunchRun:
    """One work item: all keys of one sequence of four tokens."""
    code = code_of(name)
    rng = np.random.default_rng(0)
    arrays = {
        "Q": rng.standard_normal((TOKENS, HEADS, DEPTH)).astype(E4M3).view(np.uint8),
        "KV": rng.standard_normal((KEYS, DEPTH)).astype(E4M3).view(np.uint8),
        "kv_indptr": np.array([0, KEYS], np.int32),
        "pages": np.arange(KEYS, dtype=np.int32),
        "last": np.array([1], np.int32),
        "qo_indptr": np.array([0, TOKENS], np.int32),
        "work": np.array(WORK, np.uint64),
        "one": np.ones(1, np.float32),
        "work_indptr": np.array([0, 1], np.int32),
        "work_info": np.array([0, -1, 0, TOKENS, 0, KEYS, 0, 1 << 16], np.int32),
    }
    lines = ["grid = [1, 1, 1]", "block = [256, 1, 1]", "allow_unset = true"]
    for label, array in arrays.items():
        np.save(folder / f"{label}.npy", array)
        lines += [f"[buffers.{label}]", f'file = "{label}.npy"']
        if label in ("Q", "KV"):
            lines.append('dtype = "e4m3"')
        if label.startswith("work_"):
            lines.append(f"address = {WORK[label == 'work_info']}")
    shapes = {"R": ("f32", 1), "LSE": ("f32", 1), "output": ("bf16", TOKENS)}
    for label, (dtype, rows) in shapes.items():
        shape = [rows, HEADS] if label == "LSE" else [rows, HEADS, 512]
        lines += [f"[buffers.{label}]", f'dtype = "{dtype}"', f"shape = {shape}"]
    for offset, label in POINTERS.items():
        lines += ["[[arguments]]", f"offset = {offset}", f'buffer = "{label}"']
    for offset, (kind, value) in SCALARS.items():
        lines += ["[[arguments]]", f"offset = {offset}", f'type = "{kind}"', f"value = {value}"]
    launch = parse_launch("\n".join(lines), folder=folder)
    # Transfers complete at once: late ones show the waits that both objects leave out.
    return run_launch(code, launch, Settings(mode="earliest", trace_nonfinite=True))


def test_the_clobbered_address_register_is_named(tmp_path: Path) -> None:
    done = launched("2106p", tmp_path)
    assert np.isnan(done.arrays["output"]).any()
    wrong = [origin for origin in done.result.nonfinite if origin.kind != "constant"]
    assert {origin.kind for origin in wrong} == {"undefined"}
    first = wrong[0]
    assert first.asm.startswith("v_mfma_f32_32x32x64_f8f6f4 v[32:47], a[72:79]")
    assert first.culprit is not None
    source = first.sources[first.culprit]
    assert source.writer_asm == "ds_read_b128 a[72:75], v18"
    assert source.provenance == "LDS that was never written"
    assert source.address_asm == "v_add_u32 v18, 8, v18"
    reached = [o for o in done.result.nonfinite_outputs if o.buffer == "output"]
    assert reached and all(output.origin in wrong for output in reached)


def test_the_repaired_object_has_no_such_origin(tmp_path: Path) -> None:
    done = launched("2106", tmp_path)
    assert np.isfinite(done.arrays["output"].astype(np.float32)).all()
    assert {origin.kind for origin in done.result.nonfinite} <= {"constant"}
    assert [o for o in done.result.nonfinite_outputs if o.buffer == "output"] == []

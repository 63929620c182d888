"""What compilers make of the corpus: valid PTX, which our reader reads, and its launch."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from mlagen.errors import MissingError, ScheduleError
from mlagen.targets.nvidia.ptxas import assemble_ptx, find_ptxas

pytest.importorskip("triton", reason="Triton (mlagen[triton]) is not installed")
try:
    find_ptxas("sm_90a")
except MissingError as error:
    pytest.skip(error.message, allow_module_level=True)

from bundle import write_bundle
from census import opcodes
from compiler_case import Case, Expected
from compiling import Compiled, compiled
from corpus import CASES

from mlagen.ptx import read_ptx

BY_NAME = {case.name: case for case in CASES}
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
made = functools.cache(lambda name: compiled(BY_NAME[name]))

# What the corpus is there to exercise: (in how many of its kernels at least, opcode's beginning).
SHOWN = (
    (6, "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"),
    (1, "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3"),
    (1, "wgmma.mma_async.sync.aligned.m64n128k32.f32.e5m2.e5m2"),
    (1, "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8"),
    (1, "wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16"),
    (1, "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32"),
    (1, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
    (2, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
    (1, "mma.sync.aligned.m8n8k4.row.col.f64"),
    (5, "ldmatrix.sync.aligned.m8n8.x4"),
    (5, "stmatrix.sync.aligned.m8n8.x4"),
    (8, "cp.async.bulk.tensor.2d.shared::cta.global"),
    (1, "cp.async.bulk.tensor.2d.shared::cluster.global"),
    *((1, f"cp.async.bulk.tensor.{rank}d.shared::cta.global") for rank in (1, 3, 4, 5)),
    (6, "cp.async.bulk.tensor.2d.global.shared::cta"),
    (1, "cp.reduce.async.bulk.tensor.2d"),
    (6, "cp.async.cg.shared.global"),
    (1, "cp.async.mbarrier.arrive.noinc"),
    (1, "st.async.weak.shared::cluster"),
    (1, "mapa.shared::cluster"),
    (2, "barrier.cluster.arrive"),
    (10, "mbarrier.try_wait.parity"),
    (2, "setmaxnreg"),
    (3, "tensormap.replace.tile.global_address"),
    (3, "tensormap.cp_fenceproxy"),
    (3, "fence.proxy.tensormap"),
    (10, "fence.proxy.async"),
    (1, "griddepcontrol.wait"),
    (1, "atom.global.acquire.gpu.cas"),
    (1, "atom.global.gpu.release.exch"),
    (1, "atom.relaxed.sys.shared.add.u32"),
    (1, "red.global.gpu.relaxed.add.v4.f32"),
    (1, "red.global.gpu.relaxed.add.noftz.f16"),
    (1, "redux.sync"),
    (5, "shfl.sync.bfly"),
    (1, "call"),
    (1, "ld.local"),
    (1, "cvt.rn.satfinite.e4m3x2.f32"),
)


@every_case
def test_ptxas_and_our_reader_take_it(case: Case) -> None:
    kernel = made(case.name)
    assert kernel.cubin[:4] == b"\x7fELF"  # ptxas made it of this text
    assert [entry.name for entry in read_ptx(kernel.ptx).entries] == [kernel.entry]


@every_case
def test_ptxas_repairs_nothing_but_what_is_told(case: Case) -> None:
    """It serialises wgmma, adds waits and ignores setmaxnreg where a text needs or forbids that."""
    text = made(case.name).ptx
    with pytest.raises(ScheduleError) if case.flaw else nullcontext():
        assemble_ptx(text, file_name="kernel.ptx", source_lines={}, schedule_file="corpus.py")


@every_case
def test_the_launch_is_the_one_that_the_text_asks_for(case: Case) -> None:
    kernel = made(case.name)
    assert _directive(kernel, "reqntid") == kernel.block[0]
    assert (_directive(kernel, "reqnctapercluster") or 1) == kernel.cluster[0]
    assert all(ctas % of == 0 for ctas, of in zip(kernel.grid, kernel.cluster, strict=True))
    sizes = {"tensor_map": 128, "u64": 8, "i64": 8, "i32": 4, "f32": 4}
    told = [sizes[parameter.type] for parameter in kernel.parameters]
    assert told == [size for _, size in kernel.declared]


@every_case
def test_what_has_no_defined_bits_is_told(case: Case) -> None:
    kernel = made(case.name)
    loose = {op for op in opcodes(kernel.ptx) if ".approx" in op or op.startswith("div.full")}
    assert loose == set(case.approximate)


@every_case
def test_the_reference_tells_results_apart(case: Case) -> None:
    """Buffers that no kernel touched miss, and so does what is off by a tenth of the spread."""
    buffers = case.buffers()
    expected = case.expect(buffers)
    assert all(e.value.shape == buffers[name].shape for name, e in expected.items())
    assert _share(expected, buffers) > 0.4
    assert _share(expected, {name: _off(e.value) for name, e in expected.items()}) > 0.95
    assert _share(expected, {name: e.value for name, e in expected.items()}) == 0


def test_the_corpus_shows_what_it_is_for() -> None:
    holds = [set(opcodes(made(case.name).ptx)) for case in CASES]
    for least, opcode in SHOWN:
        found = sum(any(held.startswith(opcode) for held in held_by) for held_by in holds)
        assert found >= least, f"{opcode} in {found} kernels"


def test_names_differ_and_inputs_do_not() -> None:
    assert len(BY_NAME) == len(CASES)
    for case in CASES:
        again = case.buffers()
        assert all((again[n].tobytes() == a.tobytes()) for n, a in case.buffers().items())


@pytest.mark.parametrize("name", ["multicast_pair", "attention", "quantised_rows"])
def test_a_bundle_holds_the_launch(name: str, tmp_path: Path) -> None:
    kernel = made(name)
    write_bundle(kernel, tmp_path)
    launch = tomllib.loads((tmp_path / "launch.toml").read_text())
    assert launch["kernel"] == kernel.entry and launch["dynamic_shared"] == kernel.shared
    assert [a["name"] for a in launch["arguments"]] == [n for n, _ in kernel.declared]
    maps = {table["name"]: table for table in launch.get("tensor_maps", [])}
    for argument in launch["arguments"]:
        if "tensor_map" in argument:
            assert maps[argument["tensor_map"]]["buffer"] in launch["buffers"]
        if "buffer" in argument:
            assert argument["buffer"] in launch["buffers"]
    about = json.loads((tmp_path / "case.json").read_text())
    for output in about["outputs"]:
        value = np.load(tmp_path / f"{output}.expected.npy")
        bound = np.load(tmp_path / f"{output}.bound.npy")
        assert Expected(value, bound).misses(value) == 0
        assert launch["buffers"][output]["output"] == f"{output}.out.npy"


def _off(value: np.ndarray) -> np.ndarray:
    """Integers off by one, others by a tenth of their spread; numbers where NaN belongs."""
    if value.dtype.kind in "iu":
        return value + 1
    return np.nan_to_num(value) + 0.1 * (np.nanstd(value) or np.nanmax(abs(value)))


def _share(expected: dict[str, Expected], got: dict[str, np.ndarray]) -> float:
    """The share of elements that miss."""
    misses = sum(e.misses(got[name]) for name, e in expected.items())
    return misses / sum(e.value.size for e in expected.values())


def _directive(kernel: Compiled, name: str) -> int | None:
    found = re.search(rf"^\.{name} (\d+)", kernel.ptx, re.M)
    return int(found[1]) if found else None

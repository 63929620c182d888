"""Compilers' kernels for sm_100a in the emulator: right in all modes, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlagen.errors import MissingError
from mlagen.targets.nvidia.ptxas import find_ptxas

pytest.importorskip("triton", reason="Triton (mlagen[triton]) is not installed")
pytest.importorskip("numba", reason="the emulator's compiler (mlagen[emulator]) is not installed")
try:
    find_ptxas("sm_90a")
except MissingError as error:
    pytest.skip(error.message, allow_module_level=True)

from bundle import write_bundle
from compiler_case import Case
from compiling import compiled
from corpus_blackwell import CASES
from emulate_bundles import MODES, emulated, good, grave, in_all_modes, reported
from judging import Bundle

BY_NAME = {case.name: case for case in CASES}
# What these compilers leave out by the ISA's letter; the kernels run on every chip that is known.
BY_LETTER = (
    "ordered, but for the fences of tensor memory",  # no kernel has a tcgen05.fence
    "still has: needs tcgen05.wait::ld before it",  # LLVM moves uses of registers up
    "tcgen05.alloc",  # writes where TMA writes later, with a barrier alone between them
    "no fence.mbarrier_init or fence.proxy.async shows its initialisation",
    "of the same value",
)


def bundle_of(case: Case, folder: Path) -> Bundle:
    write_bundle(compiled(case), folder)
    return Bundle.read(folder)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_results_and_findings(case: Case, tmp_path: Path) -> None:
    """Right by the reference, of the same bits in all modes; nothing found but what is known."""
    bundle = bundle_of(case, tmp_path)
    runs = in_all_modes(bundle)
    report = reported(bundle, runs, 0)
    assert good(bundle, report), report
    text = (tmp_path / "kernel.ptx").read_text()
    assert ".target sm_100a" in text
    assert "tcgen05.mma" in text or case.name in ("copied_cells", "taken_work")
    for run in runs.values():
        told = [f.message for f in run.findings]
        assert not [m for m in told if not any(words in m for words in BY_LETTER)]
        assert all(f.severity == "letter" for f in run.findings)


@pytest.mark.parametrize(
    ("name", "line", "kind"),
    [
        ("tensor_ring", "tcgen05.commit", "deadlock"),
        ("tensor_pair", "tcgen05.commit", "deadlock"),
        ("tensor_ring", "tcgen05.dealloc", "tensor-misuse"),
        ("tensor_ring", "mbarrier.arrive.expect_tx", "deadlock"),
        ("matmul_bf16", "tcgen05.wait::st", "race-waw"),
        ("attention", "fence.proxy.async", "race-raw"),
    ],
)
def test_a_line_that_is_taken_out_is_missed(
    name: str, line: str, kind: str, tmp_path: Path
) -> None:
    bundle = bundle_of(BY_NAME[name], tmp_path)
    path = tmp_path / "kernel.ptx"
    lines = path.read_text().splitlines()
    without = [text for text in lines if line not in text]
    assert len(without) < len(lines)
    path.write_text("\n".join(without) + "\n")
    run = emulated(bundle, MODES["latest"])
    assert any(f.kind == kind and f.severity == "error" for f in run.findings), run.findings
    assert grave({"latest": run})

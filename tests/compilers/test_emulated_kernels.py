"""Compilers' kernels in the emulator: right in all modes, and told what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
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
from corpus import CASES
from emulate_bundles import MODES, emulated, good, grave, in_all_modes, reported
from judging import Bundle

BY_NAME = {case.name: case for case in CASES}
# What is true by the ISA's letter and harms nothing: words of the finding, and the kernels.
BY_LETTER = {
    # Warps that hold copies of a value store it to the same place, with nothing between them.
    "of the same value": {
        "boxes_4d", "boxes_5d", "histogram_bins", "matmul_specialised", "roles", "sorted_rows",
    },
    # Between mbarrier.init and the first copy that completes on it there is a barrier alone.
    "no fence.mbarrier_init or fence.proxy.async shows its initialisation": {
        "batched_tiles", "boxes_1d", "boxes_2d", "boxes_4d", "boxes_5d", "matmul_flattened",
        "matmul_host_maps", "matmul_persistent", "matmul_specialised", "reduced_tiles", "roles",
        "tma_ring",
    },
}  # fmt: skip


def bundle_of(case: Case, folder: Path) -> Bundle:
    write_bundle(compiled(case), folder)
    return Bundle.read(folder)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_results_and_findings(case: Case, tmp_path: Path) -> None:
    """Right by the reference, of the same bits where these are defined, in the modes latest,
    earliest and random; and nothing found but what is known."""
    bundle = bundle_of(case, tmp_path)
    runs = in_all_modes(bundle)
    report = reported(bundle, runs, 0)
    assert good(bundle, report), report
    wanted = {words for words, names in BY_LETTER.items() if case.name in names}
    for mode, run in runs.items():
        told = [f.message for f in run.findings if f.severity == "letter"]
        found = {words for words in BY_LETTER if any(words in message for message in told)}
        others = [message for message in told if not any(words in message for words in BY_LETTER)]
        assert (found, others) == (wanted, []), mode


def test_the_flaw_is_found_and_can_do_harm(tmp_path: Path) -> None:
    """Sums that are read before their wgmma is waited for: wrong where it lands late."""
    (case,) = (case for case in CASES if case.flaw)
    bundle = bundle_of(case, tmp_path)
    late = emulated(bundle, MODES["latest"])
    assert {f.kind for f in late.findings} == {"register-in-flight"}
    assert bundle.expected("c").misses(late.outputs["c"]) > 1000


@pytest.mark.parametrize(
    ("name", "line", "kind"),
    [
        ("roles", "fence.proxy.async", "race-raw"),
        ("tma_ring", "mbarrier.arrive.expect_tx", "deadlock"),
        ("grouped_copies", "bar.sync", "race-"),
    ],
)
def test_a_line_that_is_taken_out_is_missed(
    name: str, line: str, kind: str, tmp_path: Path
) -> None:
    """That nothing is found in a kernel says something only where its defects are found."""
    bundle = bundle_of(BY_NAME[name], tmp_path)
    path = tmp_path / "kernel.ptx"
    lines = path.read_text().splitlines()
    without = [text for text in lines if line not in text]
    assert len(without) < len(lines)
    path.write_text("\n".join(without) + "\n")
    run = emulated(bundle, MODES["latest"])
    assert any(f.kind.startswith(kind) for f in run.findings), run.findings
    assert grave({"latest": run})


def test_outputs_are_fresh_at_each_run(tmp_path: Path) -> None:
    bundle = bundle_of(BY_NAME["tickets"], tmp_path)
    runs = [emulated(bundle, MODES["latest"]) for _ in range(2)]
    for name, array in runs[0].outputs.items():
        assert np.array_equal(array, runs[1].outputs[name])

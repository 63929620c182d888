"""LLVM's code runs right in every mode and gives no finding; what is not modelled is refused."""

import importlib.util

import corpus_control
import corpus_elementwise
import corpus_matrix
import corpus_memory
import numpy as np
import pytest
from llvm_corpus import FILES, LEVELS, build, code_object, launch, mismatch

from mlagen.emulator import Launch, emulate
from mlagen.errors import UnsupportedError

CASES = {
    "elementwise": corpus_elementwise.CASES,
    "control": corpus_control.CONTROL,
    "shared": corpus_memory.SHARED,
    "wave": corpus_control.WAVE,
    "matrix": corpus_matrix.CASES,
    "dma": corpus_memory.DMA,
}
KERNELS = [(name, kernel) for name in FILES for kernel in CASES[name]]
REFUSED = {
    "half_arithmetic": "v_pk_fma_f16",
    "doubles": "v_(fma|fmac|add)_f64",
    "atomic_wide_sum": "atomic_add_x2",
    "stack_array": "scratch",
}


def test_every_kernel_has_a_case():
    for name in FILES:
        assert set(code_object(name, "-O2").kernels) == set(CASES[name])
    assert set(code_object("refused", "-O2").kernels) == set(REFUSED)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("name", "kernel"), KERNELS)
def test_results_and_no_finding(name, kernel, level):
    code = code_object(name, level)
    for mode, seed in (("latest", 0), ("earliest", 0), ("random", 1), ("random", 2)):
        case = CASES[name][kernel](np.random.default_rng(7))
        result = launch(code, kernel, case, mode, seed)
        assert not result.findings, f"{mode}: {result.findings[0]}"
        assert not mismatch(case), f"{mode}: {mismatch(case)}"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("kernel", "named"), REFUSED.items())
def test_refused_by_name(kernel, named, level):
    with pytest.raises(UnsupportedError, match=named):
        emulate(
            build("refused", level),
            Launch(kernel=kernel, grid=(1, 1, 1), block=(64, 1, 1), arguments=[]),
        )


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", FILES)
def test_audit_has_no_error(name, level):
    if importlib.util.find_spec("mlagen.audit.gfx950.check") is None:
        pytest.skip("the audit of machine code is not there yet")
    check = importlib.import_module("mlagen.audit.gfx950.check")
    report = check.audit_code_object(build(name, level))
    errors = [finding for finding in report.findings if finding.severity == "error"]
    assert not errors, errors[0]

"""A wait for the wrong phase: the finding names the wait, and the parity that it must have."""

from pathlib import Path

import pytest
from ptx_snippets import ARM, INIT, kernel, wait

from mlagen.audit.ptx import audit_ptx
from mlagen.audit.ptx.changes import changes
from mlagen.ptx import read_ptx

KERNELS = ("gemm_two_math", "gemm_persistent", "gemm_gather", "gemm_deferred_release", "handoff",
           "seesaw")  # fmt: skip


def errors(text):
    return [one for one in audit_ptx(text).findings if one.severity == "error"]


def flipped(name):
    text = Path(__file__).with_name("kernels").joinpath(f"{name}.ptx").read_text()
    for change in changes(read_ptx(text).entries[0], text):
        if change.what == "the other parity":
            yield change.instruction.line, change.apply(text)


@pytest.mark.parametrize("name", KERNELS)
def test_each_wait_with_the_other_parity_is_named(name):
    """And the parity that would mend it: no error is left of any with it."""
    for line, text in flipped(name):
        found = errors(text)
        assert [one.change for one in found] == [line], line
        assert f"the wait at line {line} has parity " in found[0].message


@pytest.mark.parametrize("parity", [0, 1])
def test_a_number_is_named(parity):
    """The first wait is for phase 0, the second for phase 1."""
    body = INIT + ARM + wait(1, parity) + "    bar.sync 0;\n" + ARM + wait(2, 1)
    found = errors(kernel(body))
    assert bool(found) is bool(parity)
    if found:
        (one,) = found
        assert one.needs == "parity 0"
        assert "has parity 1 first, and must have 0" in one.message


def test_a_wait_that_lacks_its_arrival_is_not_blamed():
    (one,) = errors(kernel(INIT + ARM.replace("1024, [%bar]", "512, [%bar]") + wait(1)))
    assert one.rule == "mbarrier-transaction" and not one.change

"""The stub of `mlagen.build` is what its generator writes, and says what is returned.

What mypy makes of it is in `usage.py`, which `make lint` reads.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import stub

import mlagen
from mlagen.app.build import build_artifact
from mlagen.ops import kernel_of


def test_it_is_what_is_written() -> None:
    assert stub.STUB.read_text() == stub.text(), "python tests/typed/stub.py writes it again"


def test_it_has_what_the_module_has() -> None:
    tree = ast.parse(stub.STUB.read_text())
    named = {x.name for x in tree.body if isinstance(x, ast.FunctionDef)}
    named |= {x.target.id for x in tree.body if isinstance(x, ast.AnnAssign)}
    assert named == set(mlagen.__all__)


@pytest.mark.parametrize(
    ("kernel", "fields", "knobs", "made"),
    [
        ("mla_prefill_reduce", {"num_heads": 2}, {}, "MlaReduceKernel"),
        ("mla_decode_gfx950", {"num_heads": 16}, {}, "MlaDecodeKernel"),
        ("mla_decode_gfx950", {"num_heads": 16}, {"persistent": 1, "arguments": "aiter"},
         "AiterDecodeKernel"),
    ],
)  # fmt: skip
def test_the_class_is_that(kernel: str, fields: dict, knobs: dict, made: str) -> None:
    callables = {*stub.CALLABLES.values(), *stub.OF_AITER.values()}
    assert made in callables
    assert type(kernel_of(build_artifact(kernel, fields, knobs))).__name__ == made

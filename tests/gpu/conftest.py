"""Tests here need a Hopper GPU; some use the launcher's small kernel, and the GEMM is a user's file
beside its modules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests" / "launch")]

from hopper import why_not  # noqa: E402

REASON = why_not()
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.skipif(bool(REASON), reason=REASON))

"""Tests here need a Hopper GPU, those of files `test_*_blackwell_gpu.py` a Blackwell GPU of compute
capability 10.0; some use the launcher's small kernel, and the GEMM is a user's file beside its
modules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests" / "launch")]

from target_gpu import why_not  # noqa: E402

from mlagen.targets.sm_90a.limits import SM_90A  # noqa: E402
from mlagen.targets.sm_100a.limits import SM_100A  # noqa: E402

REASONS = {limits.name: why_not(limits) for limits in (SM_90A, SM_100A)}
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            blackwell = item.path.stem.endswith("_blackwell_gpu")
            reason = REASONS["sm_100a" if blackwell else "sm_90a"]
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.skipif(bool(reason), reason=reason))

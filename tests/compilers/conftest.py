"""Tests here compile kernels with Triton, which is an extra of its own: it takes 1 GB, no GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def _tools() -> None:
    from mlagen.errors import MissingError
    from mlagen.targets.sm_90a.ptxas import find_ptxas

    pytest.importorskip("triton", reason="Triton (mlagen[triton]) is not installed")
    try:
        find_ptxas("sm_90a")
    except MissingError as error:
        pytest.skip(error.message)

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

for _folder in ("binary", "emulator"):
    sys.path.insert(0, str(Path(__file__).parent.parent / _folder))

from sandbox import Sandbox  # noqa: E402


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """Commands under limits; one server for the session."""
    pytest.importorskip("tinygrad", reason="the decoder (mlagen[emulator]) is not installed")
    pytest.importorskip("numba", reason="the emulator (mlagen[emulator]) is not installed")
    made = Sandbox()
    yield made
    made.close()

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def _tools() -> None:
    pytest.importorskip("numba", reason="the emulator's compiler (mlagen[emulator]) is missing")
    pytest.importorskip("tinygrad", reason="the decoder (mlagen[emulator]) is not installed")

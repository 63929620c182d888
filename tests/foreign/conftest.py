import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "binary"))


@pytest.fixture(scope="session", autouse=True)
def _tools() -> None:
    pytest.importorskip("numba", reason="the emulator's compiler (mlagen[emulator]) is missing")
    pytest.importorskip("tinygrad", reason="the decoder (mlagen[emulator]) is not installed")
    pytest.importorskip("ziglang", reason="the assembler wheel (mlagen[amd]) is not installed")

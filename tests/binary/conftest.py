import pytest


@pytest.fixture(scope="session", autouse=True)
def _assembler() -> None:
    pytest.importorskip("ziglang", reason="the assembler wheel (mlagen[amd]) is not installed")
    pytest.importorskip("tinygrad", reason="the decoder (mlagen[emulator]) is not installed")

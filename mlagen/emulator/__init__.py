"""Executing gfx950 machine code on the host, with asynchronous memory and a sanitizer.

from mlagen.emulator import Argument, Buffer, emulate
result = emulate(code, grid=(1, 1, 1), block=(512, 1, 1), arguments=[
    Argument(0, Buffer("q", q, "read")), Argument(8, np.uint32(128))])
for finding in result.findings:
    print(finding)
"""

from mlagen.emulator.api import Argument, Buffer, EmulationResult, emulate
from mlagen.emulator.findings import Finding
from mlagen.emulator.nonfinite import NonfiniteOrigin, NonfiniteOutput, NonfiniteSource

__all__ = [
    "Argument",
    "Buffer",
    "EmulationResult",
    "Finding",
    "NonfiniteOrigin",
    "NonfiniteOutput",
    "NonfiniteSource",
    "emulate",
]

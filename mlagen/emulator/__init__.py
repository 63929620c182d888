"""Executing gfx950 machine code on the host, with asynchronous memory and a sanitizer.

from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate
arguments = [Argument(0, Buffer("q", q, "read")), Argument(8, np.uint32(128))]
result = emulate(code, Launch((1, 1, 1), (512, 1, 1), arguments), Settings(mode="earliest"))
for finding in result.findings:
    print(finding)
"""

from mlagen.emulator.api import emulate
from mlagen.emulator.buffer import Buffer
from mlagen.emulator.findings import Finding
from mlagen.emulator.launch import Argument, EmulationResult, Launch, Mode, Settings
from mlagen.emulator.nonfinite import NonfiniteOrigin, NonfiniteOutput, NonfiniteSource

__all__ = [
    "Argument",
    "Buffer",
    "EmulationResult",
    "Finding",
    "Launch",
    "Mode",
    "NonfiniteOrigin",
    "NonfiniteOutput",
    "NonfiniteSource",
    "Settings",
    "emulate",
]

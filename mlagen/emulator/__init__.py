"""Executing gfx950 machine code and PTX on the host, with asynchronous memory and a sanitizer.

from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate
arguments = [Argument(0, Buffer("q", q, "read")), Argument(8, np.uint32(128))]
result = emulate(code, Launch((1, 1, 1), (512, 1, 1), arguments), Settings(mode="earliest"))
for finding in result.findings:
    print(finding)

The text of a PTX kernel in the place of `code` is executed as sm_90a does.
"""

from mlagen.emulator.api import emulate
from mlagen.emulator.buffer import Buffer
from mlagen.emulator.findings import PtxFinding, SanitizerFinding
from mlagen.emulator.launch import Argument, EmulationResult, Launch, Mode, Settings
from mlagen.emulator.nonfinite import NonfiniteOrigin, NonfiniteOutput, NonfiniteSource
from mlagen.emulator.tensor_maps import TensorMap

__all__ = [
    "Argument",
    "Buffer",
    "EmulationResult",
    "Launch",
    "Mode",
    "NonfiniteOrigin",
    "NonfiniteOutput",
    "NonfiniteSource",
    "PtxFinding",
    "SanitizerFinding",
    "Settings",
    "TensorMap",
    "emulate",
]

"""sm_90a as `mlagen.codegen` asks for it."""

from __future__ import annotations

from mlagen.targets.nvidia.target import Pipelined
from mlagen.targets.sm_90a.limits import SM_90A

TARGET = Pipelined(SM_90A, ("sm_90a",))

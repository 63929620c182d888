"""sm_100a as `mlagen.codegen` asks for it: templates that it has not are Hopper's."""

from __future__ import annotations

from mlagen.targets.nvidia.target import Pipelined
from mlagen.targets.sm_100a.limits import SM_100A

TARGET = Pipelined(SM_100A, ("sm_100a", "sm_90a"))

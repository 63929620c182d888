"""The kernel descriptor of a code object against what the schedule asked for: the driver allocates
by the descriptor, launchers and checks go by the manifest.

Fields: LLVM AMDGPUUsage, "Kernel Descriptor", COMPUTE_PGM_RSRC1 and 3 of gfx90a and later.
"""

from __future__ import annotations

import struct

from mlagen.errors import TemplateError
from mlagen.targets.gfx950.codegen.agree import bytes_of
from mlagen.targets.gfx950.dsl import Schedule

OBJECT = 1  # STT_OBJECT: the descriptor is the only one
VGPR_STEP, ACCUM_STEP, SGPR_STEP = 8, 4, 16
# VCC, and what gfx940 and later set aside for flat scratch (LLVM's getNumExtraSGPRs).
RESERVED_SGPRS = 6


def check_descriptor(code: bytes, schedule: Schedule) -> None:
    """TemplateError for the first resource that the descriptor has otherwise than the schedule."""
    found = _read(bytes_of(code, OBJECT, "descriptor"))
    registers = schedule.registers
    wanted = {
        "LDS bytes": schedule.lds.used,
        "scratch bytes": 0,
        "kernarg bytes": schedule.signature.kernarg_bytes,
        "vector registers": -(-registers.used // VGPR_STEP) * VGPR_STEP,
        "first accumulation register": registers.accum_offset,
        "scalar registers": -(-(registers.next_scalar + RESERVED_SGPRS) // SGPR_STEP) * SGPR_STEP,
        "lanes of a wave": 64,
    }
    for name, number in wanted.items():
        if found[name] != number:
            raise TemplateError(
                f"{schedule.name}: the object's descriptor has {found[name]} {name}, the schedule "
                f"{number}",
                hint="the template of the kernel's head says them: kernel.s.j2",
            )


def _read(data: bytes) -> dict[str, int]:
    lds, scratch, kernarg = struct.unpack_from("<III", data, 0)
    rsrc3, rsrc1, _, properties = struct.unpack_from("<IIIH", data, 44)
    return {
        "LDS bytes": lds,
        "scratch bytes": scratch,
        "kernarg bytes": kernarg,
        "vector registers": ((rsrc1 & 0x3F) + 1) * VGPR_STEP,
        "first accumulation register": ((rsrc3 & 0x3F) + 1) * ACCUM_STEP,
        "scalar registers": ((rsrc1 >> 6 & 0xF) // 2 + 1) * SGPR_STEP,
        "lanes of a wave": 32 if properties >> 10 & 1 else 64,
    }

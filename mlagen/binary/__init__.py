"""Reading gfx950 code objects that anyone made: container, descriptor, metadata, instructions.

from mlagen.binary import read_code_object
kernel = read_code_object("kernel.co").kernel()
for instruction in kernel.instructions:
    print(instruction)
"""

from mlagen.binary.code_object import CodeObject, KernelCode, load_code_object, read_code_object
from mlagen.binary.descriptor import KernelDescriptor
from mlagen.binary.instruction import MachineInstruction
from mlagen.binary.metadata import ArgumentInfo, KernelInfo
from mlagen.binary.operand import Operand

__all__ = [
    "ArgumentInfo",
    "CodeObject",
    "KernelCode",
    "KernelDescriptor",
    "KernelInfo",
    "MachineInstruction",
    "Operand",
    "load_code_object",
    "read_code_object",
]

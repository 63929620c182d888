"""Reading PTX text that anyone made: kernels, instructions, control flow, matrix descriptors.

from mlagen.ptx import Graph, read_ptx
entry = read_ptx(open("kernel.ptx").read()).entries[0]
graph = Graph(entry)
for instruction in entry.instructions:
    print(instruction.line, graph.kinds[instruction.index], graph.reads[instruction.index])

`read_ptx` takes what a stranger wrote: it refuses what it does not understand with the line, in a
time that grows with the text's length. It checks the grammar; `wellformed.check` checks the
operands of the instructions whose meaning `effects.Kind` tells; `inlining.inlined` makes a kernel
without calls. Nothing here executes, and nothing knows a schedule.
"""

from mlagen.ptx.descriptor import Descriptor
from mlagen.ptx.effects import Kind, kind_of
from mlagen.ptx.graph import Graph
from mlagen.ptx.reader import read_ptx
from mlagen.ptx.syntax import (
    Address,
    Entry,
    Function,
    Guard,
    Instruction,
    Location,
    MemoryOperand,
    Module,
    Operand,
    Parameter,
    Real,
    Variable,
    Vector,
)

__all__ = [
    "Address",
    "Descriptor",
    "Entry",
    "Function",
    "Graph",
    "Guard",
    "Instruction",
    "Kind",
    "Location",
    "MemoryOperand",
    "Module",
    "Operand",
    "Parameter",
    "Real",
    "Variable",
    "Vector",
    "kind_of",
    "read_ptx",
]

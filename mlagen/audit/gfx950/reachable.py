"""Edges of the flow that no wave takes, whatever the inputs."""

from __future__ import annotations

from dataclasses import replace

from mlagen.audit.gfx950.steps import SCALARS_FROM, Step
from mlagen.binary.flow import Flow
from mlagen.binary.operand import EXEC

_EXEC_MASK = 3 << SCALARS_FROM + EXEC


def without_empty_waves(steps: tuple[Step, ...], flow: Flow) -> Flow:
    """The flow without jumps of a wave that has no active lane, where nothing writes EXEC: no wave
    starts without a lane (CDNA4 ISA guide, s_cbranch_execz). Compilers leave such jumps behind.
    """
    if any(step.writes & _EXEC_MASK for step in steps):
        return flow
    blocks = list(flow.blocks)
    for block in flow.blocks:
        name = steps[block.last].ins.mnemonic
        if name not in ("s_cbranch_execz", "s_cbranch_execnz") or len(block.successors) != 2:
            continue
        through = flow.block_at[block.last + 1]
        jumped = next(after for after in block.successors if after != through)
        taken = jumped if name.endswith("nz") else through
        blocks[block.index] = replace(block, successors=(taken,))
    return Flow(flow.instructions, tuple(blocks), flow.indirect)

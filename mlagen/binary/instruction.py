"""Decoded instructions as plain values: the only form in which the checkers see machine code."""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.binary.operand import OperandForm
from mlagen.binary.text import format_instruction

ENDS = ("s_endpgm", "s_endpgm_saved", "s_endpgm_ordered_ps_done")
"""What ends a wave. All memory operations of it are done by then (CDNA4 ISA guide, S_ENDPGM)."""
INDIRECT = ("s_setpc_b64", "s_swappc_b64", "s_call_b64", "s_rfe_b64", "s_rfe_restore_b64",
            "s_cbranch_join", "s_cbranch_g_fork", "s_cbranch_i_fork")  # fmt: skip
"""Jumps whose targets are not in the code."""
LEAVES = (*ENDS, "s_branch")
"""No wave goes on behind these."""


@dataclass(frozen=True, slots=True)
class MachineInstruction(OperandForm):
    """One decoded instruction, `size` bytes at `offset` bytes from the kernel's entry."""

    offset: int
    size: int

    @property
    def branch_target(self) -> int | None:
        """Byte offset a direct branch goes to, None for everything else."""
        if self.encoding == "SOPP" and self.mnemonic.startswith(("s_branch", "s_cbranch_")):
            distance = self.modifier("simm16")
            return self.offset + 4 + 4 * (distance - 0x10000 if distance & 0x8000 else distance)
        return None

    def __str__(self) -> str:
        return format_instruction(self)

"""How much a finding weighs: whether accesses are unordered on any hardware, or by the letter of
the PTX ISA alone."""

from __future__ import annotations

from mlagen.ptx import Instruction
from mlagen.severity import ERROR, LETTER, Severity

# A write by a copy that a wait orders before a wgmma, without the fence between the proxies: no
# failure of it is known on sm_90, and published kernels rely on it. Ordinary stores do fail.
_COPIED = ("cp.async", "st.async")


def severity(rule: str, instruction: Instruction, other: Instruction | None) -> Severity:
    """Whether a finding is unordered on any hardware, or by the ISA's letter alone."""
    # Nobody has written whether a block's memory is free while a thread's cp.async is on its way.
    by_thread = rule == "copy-unwaited" and "bulk" not in instruction.parts
    if rule == "bulk-unwaited" or by_thread:
        return LETTER
    if rule == "proxy-fence" and other is not None and instruction.name == "wgmma":
        return LETTER if other.opcode.startswith(_COPIED) else ERROR
    return ERROR

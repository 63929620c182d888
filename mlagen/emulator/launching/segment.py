"""The argument segment as the runtime fills it, which is not always as the metadata declares it.

AITER's host code passes one packed structure, in which a pointer has 8 bytes and the next argument
lies 16 bytes on. Objects of it declare some pointers as values of 4 bytes, then padding; the
runtime copies the padding too, so the whole pointer arrives (ROCclr, hip_module.cpp: each declared
argument from its offset). What lies beyond the segment is not copied (ROCclr, rocvirtual.cpp:
as many bytes as the segment has).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mlagen.binary import ArgumentInfo

_FILLER = re.compile(r"_*(pad|hidden_).*")
POINTER_BYTES = 8


def is_filler(argument: ArgumentInfo) -> bool:
    """Whether nobody has to set it: padding, and what the runtime sets."""
    return bool(_FILLER.fullmatch(argument.name)) or argument.kind.startswith("hidden_")


def holds_pointer(declared: Sequence[ArgumentInfo], argument: ArgumentInfo) -> bool:
    """Whether a pointer fits where an argument is declared: in it, or in it and its padding."""
    end = argument.offset + argument.size
    wanted = argument.offset + POINTER_BYTES
    for other in sorted(declared, key=lambda other: other.offset):
        if other.offset == end < wanted and _FILLER.fullmatch(other.name):
            end += other.size
    return end >= wanted


def is_pointer(declared: Sequence[ArgumentInfo], argument: ArgumentInfo) -> bool:
    """Whether an argument is declared as a pointer, or is one by its name and room."""
    if argument.kind == "global_buffer":
        return True
    named = re.match(r"ptr(_|[A-Z]|$)", argument.name) is not None
    return named and argument.size == POINTER_BYTES // 2 and holds_pointer(declared, argument)

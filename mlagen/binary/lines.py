"""The DWARF line table of a code object: which line of the assembly text made which bytes."""

from __future__ import annotations

import io

from elftools.common.exceptions import DWARFError, ELFError
from elftools.elf.elffile import ELFFile


def read_line_table(data: bytes, text_address: int) -> dict[int, int]:
    """Map byte offsets in .text to 1-based lines of the source; {} when there is no line program.

    Every offset at which a row of the program starts is a key; the objects that an assembler
    makes with -g have one row an instruction. A damaged table is treated as absent: it only
    serves to place findings.
    """
    table: dict[int, int] = {}
    try:
        elf = ELFFile(io.BytesIO(data))
        if not elf.has_dwarf_info():
            return {}
        dwarf = elf.get_dwarf_info()
        for unit in dwarf.iter_CUs():
            program = dwarf.line_program_for_CU(unit)
            if program is None:
                continue
            for entry in program.get_entries():
                state = entry.state
                if state is not None and not state.end_sequence:
                    table[state.address - text_address] = state.line
    except (ELFError, DWARFError, ValueError, KeyError, IndexError, AttributeError, TypeError):
        return {}
    except (AssertionError, OverflowError, OSError):
        return {}
    return table

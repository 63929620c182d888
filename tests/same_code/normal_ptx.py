"""The text of a kernel without what may change while the code stays the same.

PTX: comments go, and registers, labels and symbols are numbered by their first use, so that names,
the order of declarations and blank space count for nothing. Types of registers, immediates, order
and operands of instructions all count.
"""

from __future__ import annotations

import re

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
REGISTERS = re.compile(r"^\s*\.reg\s+(?:\.v[24]\s+)?(\.\w+)\s+([^;]*);", re.M)
DECLARED = re.compile(r"(%?[\w$]+)(?:<(\d+)>)?")
LABEL = re.compile(r"^\s*([A-Za-z_$][\w$]*)\s*:", re.M)
SYMBOL = re.compile(
    r"\.(?:entry|func)\s+([\w$]+)|\.(?:param|shared|global|const)\s+(?:\.align\s+\d+\s+)?\.\w+\s+([\w$]+)"
)
WORD = re.compile(r"%[A-Za-z_$][\w$]*|[A-Za-z_$][\w$]*+(?!\.)")  # no opcode is a label or a symbol


def normal_ptx(text: str) -> str:
    """PTX with numbers for names: lines that are equal for two texts of the same code."""
    text = COMMENT.sub("", text)
    types: dict[str, str] = {}
    for kind, names in REGISTERS.findall(text):
        for name, many in DECLARED.findall(names):
            types |= {f"{name}{n}": kind for n in range(int(many))} if many else {name: kind}
    labels = set(LABEL.findall(text))
    symbols = {first or second for first, second in SYMBOL.findall(text)}
    numbers: dict[str, str] = {}

    def numbered(word: re.Match[str]) -> str:
        name = word[0]
        if name in types:
            return numbers.setdefault(name, f"%{len(numbers)}{types[name]}")
        if name in labels:
            return numbers.setdefault(name, f"L{len(numbers)}")
        if name in symbols:
            return numbers.setdefault(name, f"S{len(numbers)}")
        return name

    lines = WORD.sub(numbered, REGISTERS.sub("", text)).splitlines()
    return "\n".join(" ".join(line.split()) for line in lines if line.strip())

"""What instructions a folder of PTX files has: python tests/compilers/census.py FOLDER

Prints each opcode with its modifiers, how often it stands in the texts, and in how many of them.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

_STATEMENT = re.compile(
    r"^\s*(?:@!?%\w+\s+)?([a-z][a-z0-9_]*(?:(?:\.|::)[a-zA-Z0-9_]+)*)\s*(?=[\s{\[(;])"
)


def opcodes(ptx: str) -> Counter[str]:
    """Opcodes of the instructions of a text, and how often each is there."""
    ptx = re.sub(r"//[^\n]*|/\*.*?\*/", "", ptx, flags=re.S)
    found: Counter[str] = Counter()
    for piece in re.split(r"[;\n]|(?<=:)\s", re.sub(r"[{}]\s*\n", "\n", ptx)):
        if (named := _STATEMENT.match(piece.strip().lstrip("{ \t") + " ")) is not None:
            found[named[1]] += 1
    return found


def main(folder: Path) -> None:
    total: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path in sorted(folder.glob("*.ptx")):
        here = opcodes(path.read_text())
        total += here
        files.update(here.keys())
    for opcode in sorted(total):
        print(f"{total[opcode]:7} {files[opcode]:4} {opcode}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Types in opcodes."""

from __future__ import annotations

import re
from functools import lru_cache

TYPE = re.compile(r"([usbf]|bf|pred)(8|16|32|64|128)?$")


@lru_cache(maxsize=4096)
def bits_of(parts: tuple[str, ...]) -> tuple[str, int]:
    """Signedness letter and width of the last type in an opcode: ("u", 32)."""
    for part in reversed(parts):
        match = TYPE.match(part)
        if match and (match.group(2) or part == "pred"):
            return match.group(1), int(match.group(2) or 1)
    return "b", 64


def access_bytes(parts: tuple[str, ...]) -> int:
    """Bytes that one thread's load or store moves."""
    vector = next((int(p[1:]) for p in parts if p in ("v2", "v4", "v8")), 1)
    return vector * max(bits_of(parts)[1] // 8, 1)

"""What readers of files from strangers share: JSON that may hold anything, text that is shown.

Who is trusted is in SECURITY.md.
"""

from __future__ import annotations

from typing import Any

import msgspec

_LINES = frozenset("\n\t")


def decode_json(data: bytes | str, type: Any = Any) -> Any:
    """`data` as a value of `type`. ValueError with one line that says where it is none.

    Nesting beyond the interpreter's limit, bytes that are no UTF-8 and numbers beyond 64 bits (in
    untyped places: beyond what a float holds) are refused like any other mistake.
    """
    try:
        return msgspec.json.decode(data, type=type)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is no UTF-8") from None
    except msgspec.MsgspecError as error:
        raise ValueError(str(error).partition("\n")[0]) from None


def printable(text: str) -> str:
    """`text` as a terminal may see it: characters that steer one (escapes, backspaces, changes of
    the writing direction) become `\\x1b` and the like. Line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in _LINES else _escaped(letter) for letter in text
    )


def _escaped(letter: str) -> str:
    number = ord(letter)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"

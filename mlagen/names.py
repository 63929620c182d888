"""Names of functions as people read them: what C++ adds to them is left out."""

from __future__ import annotations

import re

_LONGEST = 60


def short_name(function: str) -> str:
    """A function's name without what C++ adds: of a mangled one the identifiers that begin it
    ("cute::gemm"), of others at most 60 characters, as `cut` has them."""
    mangled = re.match(r"_ZNK?|_Z(?=\d)", function)
    names, at = [], mangled.end() if mangled else 0
    while mangled and (length := re.match(r"\d{1,3}", function[at:])):
        at += length.end()
        names.append(function[at : at + int(length.group())])
        at += int(length.group())
    return cut("::".join(names) or function)


def cut(name: str) -> str:
    """A name of at most 60 characters: the middle is left out."""
    return name if len(name) <= _LONGEST else f"{name[:42]}...{name[-15:]}"

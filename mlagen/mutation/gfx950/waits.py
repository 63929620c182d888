"""Mutants of waits and wait states: one count too weak, one counter not waited for, no wait at all;
`s_nop` removed, or one state shorter."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mlagen.mutation.gfx950.listing import Listing
from mlagen.mutation.gfx950.mutant import Mutant, replaced
from mlagen.targets.gfx950.limits import GFX950

# The largest value of each field of s_waitcnt, which asks for no wait (CDNA4 ISA, SOPP S_WAITCNT).
MAXIMUM = {"vmcnt": GFX950.vmcnt_max, "lgkmcnt": GFX950.lgkmcnt_max}
_FIELD = re.compile(r"(\w+)\((\d+)\)")


def wait_mutants(listing: Listing) -> Iterator[Mutant]:
    """For every `s_waitcnt`: each counter one up, each counter removed, all of it removed."""
    for line in listing.lines.values():
        if line.mnemonic != "s_waitcnt":
            continue
        fields = {name: int(count) for name, count in _FIELD.findall(line.code)}
        for name, count in fields.items():
            rest = {other: n for other, n in fields.items() if other != name}
            what = f"{name}({count})"
            if count < MAXIMUM[name]:
                more, weaker = f"{what} -> {name}({count + 1})", {**fields, name: count + 1}
                code = f"s_waitcnt {_spelled(weaker)}"
                yield replaced(listing, "waits", "count + 1", more, line, code, touches=name)
            code = f"s_waitcnt {_spelled(rest)}" if rest else ""
            yield replaced(listing, "waits", "counter removed", what, line, code, touches=name,
                           unchanged=_no_wait({name: count}))  # fmt: skip
        if len(fields) > 1:
            what = line.code.removeprefix("s_waitcnt ")
            yield replaced(listing, "waits", "removed", what, line, "", touches=" ".join(fields),
                           unchanged=_no_wait(fields))  # fmt: skip


def _spelled(fields: dict[str, int]) -> str:
    return " ".join(f"{name}({count})" for name, count in fields.items())


def _no_wait(fields: dict[str, int]) -> str:
    if any(count < MAXIMUM[name] for name, count in fields.items()):
        return ""
    return f"{_spelled(fields)} is the field's maximum, which asks for no wait"


def nop_mutants(listing: Listing) -> Iterator[Mutant]:
    """Every `s_nop N` removed, and for N > 0 shortened to N - 1."""
    for line in listing.lines.values():
        if line.mnemonic != "s_nop":
            continue
        count = int(line.code.split()[1])
        what, less = f"s_nop {count}", f"s_nop {count - 1}"
        if count:
            shorter = f"{what} -> {less}"
            yield replaced(listing, "nops", "one shorter", shorter, line, less, touches="s_nop")
        yield replaced(listing, "nops", "removed", what, line, "", touches="s_nop")

"""Mutants of waits: one count too weak, one counter not waited for, no wait at all."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mlagen.mutation.listing import Listing
from mlagen.mutation.mutant import Mutant, mutant
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
            if count < MAXIMUM[name]:
                yield mutant(
                    listing,
                    "waits",
                    "count + 1",
                    f"{name}({count}) -> {name}({count + 1})",
                    line.number,
                    {line.number: (_wait({**fields, name: count + 1}),)},
                    touches=name,
                )
            yield mutant(
                listing,
                "waits",
                "counter removed",
                f"{name}({count})",
                line.number,
                {line.number: (_wait(rest),) if rest else ()},
                touches=name,
                unchanged=_no_wait({name: count}),
            )
        if len(fields) > 1:
            yield mutant(
                listing,
                "waits",
                "removed",
                line.code.removeprefix("s_waitcnt "),
                line.number,
                {line.number: ()},
                touches=" ".join(fields),
                unchanged=_no_wait(fields),
            )


def _wait(fields: dict[str, int]) -> str:
    return "  s_waitcnt " + " ".join(f"{name}({count})" for name, count in fields.items())


def _no_wait(fields: dict[str, int]) -> str:
    if any(count < MAXIMUM[name] for name, count in fields.items()):
        return ""
    named = " ".join(f"{name}({count})" for name, count in fields.items())
    return f"{named} is the field's maximum, which asks for no wait"

"""Mutants of required wait states: `s_nop` removed, or one state shorter."""

from __future__ import annotations

from collections.abc import Iterator

from mlagen.mutation.listing import Listing
from mlagen.mutation.mutant import Mutant, mutant


def nop_mutants(listing: Listing) -> Iterator[Mutant]:
    """Every `s_nop N` removed, and for N > 0 shortened to N - 1."""
    for line in listing.lines.values():
        if line.mnemonic != "s_nop":
            continue
        count = int(line.code.split()[1])
        if count:
            yield mutant(
                listing,
                "nops",
                "one shorter",
                f"s_nop {count} -> s_nop {count - 1}",
                line.number,
                {line.number: (f"  s_nop {count - 1}",)},
                touches="s_nop",
            )
        yield mutant(
            listing,
            "nops",
            "removed",
            f"s_nop {count}",
            line.number,
            {line.number: ()},
            touches="s_nop",
        )

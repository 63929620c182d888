"""Mutants of barriers: removed, or moved by one cluster, for one role or for all.

A barrier moves along the control flow, also into another section. Where several clusters lead to
several clusters (prologue and loop into loop and drain), all barriers of that junction move
together: otherwise some path would have one barrier more and others one less.

A mutation of one role needs a branch: `s_cmp_lt_u32 s[WAVE], 4` and `s_cbranch_scc0|1`. It
overwrites SCC, which nothing reads there: in generated code SCC is written by the compare (or the
carry-producing addition) directly in front of each of its readers, inside one cluster. That is
checked on the text, reader by reader, before any mutant is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mlagen.errors import UnsupportedError
from mlagen.mutation.gfx950.listing import ClusterBlock, InstructionLine, Listing, WaveRange
from mlagen.mutation.gfx950.mutant import Mutant, mutant, only

_SCC_READERS = ("s_cbranch_scc", "s_cselect", "s_addc", "s_subb", "s_cmov", "s_cmovk")
# Scalar instructions that leave SCC alone (CDNA4 ISA, SOP1, SOP2 and SOPP); the others write it.
_SCC_KEPT = ("s_mov", "s_mul", "s_nop", "s_barrier", "s_waitcnt", "s_setprio", "s_cselect",
             "s_branch", "s_cbranch", "s_load", "s_endpgm", "s_cmov", "s_sleep", "s_pack",
             "s_bfm")  # fmt: skip


@dataclass(frozen=True)
class _Junction:
    """Clusters that lead to the same clusters. Either side may be several, across sections."""

    before: tuple[ClusterBlock, ...]
    after: tuple[ClusterBlock, ...]


def barrier_mutants(listing: Listing) -> Iterator[Mutant]:
    """All barriers of clusters, then the extra ones that make and undo the stagger."""
    require_free_scc(listing)
    for block in listing.blocks:
        if block.closed:
            for role in _roles(listing, block):
                yield _removed(listing, block, role)
    for junction in _junctions(listing):
        for role in _roles(listing, junction.before[0]):
            yield _moved(listing, junction, role, forward=True)
            if any(block.closed for block in junction.after):
                yield _moved(listing, junction, role, forward=False)
    yield from _stagger_mutants(listing)


def _roles(listing: Listing, block: ClusterBlock) -> Iterator[WaveRange | None]:
    """Whose barrier at the end of a block is mutated, each alone and (None) all together. Where
    roles have code of their own, all together are mutated with the first one's."""
    for at, role in enumerate(listing.roles):
        if len(listing.roles) > 1 and block.role in ("", role.name):
            yield role
        if block.role == role.name and at:
            return
    yield None


def require_free_scc(listing: Listing) -> None:
    """Raises UnsupportedError unless SCC is written inside the cluster of each of its readers."""
    order = list(listing.lines.values())
    labels = set(listing.labels.values())
    for at, reader in enumerate(order):
        if not reader.mnemonic.startswith(_SCC_READERS):
            continue
        number = reader.number
        for line in reversed(order[:at]):
            crossed = any(line.number < label < number for label in labels)
            if crossed or line.mnemonic == "s_barrier":
                raise UnsupportedError(
                    f"line {reader.number}: {reader.code} reads an SCC from before line {number}; "
                    "a barrier of one role cannot be made there"
                )
            number = line.number
            if line.mnemonic.startswith("s_") and not line.mnemonic.startswith(_SCC_KEPT):
                break


def _removed(listing: Listing, block: ClusterBlock, role: WaveRange | None) -> Mutant:
    bare = "" if listing.moves_data(block) else "; its cluster moves no data"
    blocks = listing.twins([block]) if role is None else (block,)
    edits = {one.end: _instead(listing, one.end, role) for one in blocks}
    return _mutant(listing, "removed", f"s_barrier{bare}", block.end, edits, role)


def _moved(
    listing: Listing, junction: _Junction, role: WaveRange | None, *, forward: bool
) -> Mutant:
    if role is None:
        junction = _Junction(listing.twins(junction.before), listing.twins(junction.after))
    taken, given = junction.before, junction.after
    if not forward:
        taken, given = given, taken
    taken = tuple(block for block in taken if block.closed)
    edits: dict[int, tuple[str, ...]] = {}
    for block in taken:
        edits[block.end] = _instead(listing, block.end, role)
    for block in given:
        kept = edits.get(block.end, (_raw(listing, block.end),))
        edits[block.end] = (*_extra(listing, block.end, role), *kept)
    # The barrier jumps over the clusters after the junction, whichever way it goes.
    over = " and ".join(dict.fromkeys(block.title for block in junction.after))
    unchanged = ""
    if not any(listing.moves_data(block) for block in junction.after):
        unchanged = f"it moves over {over}, without memory operations and waits"
    way = f"moved to the {'next' if forward else 'previous'} cluster"
    what = f"s_barrier over {over}"
    return _mutant(listing, way, what, taken[0].end, edits, role, unchanged)


def _mutant(
    listing: Listing,
    operator: str,
    what: str,
    line: int,
    edits: dict[int, tuple[str, ...]],
    role: WaveRange | None,
    unchanged: str = "",
) -> Mutant:
    """A mutant of a barrier, for the waves of a role; None: of all."""
    made = mutant(listing, "barriers", operator, what, line, edits, touches="s_barrier",
                  unchanged=unchanged)  # fmt: skip
    return replace(made, role=role.name if role else "all")


def _junctions(listing: Listing) -> Iterator[_Junction]:
    """The places between clusters: groups of ends with the groups of ends that follow them."""
    following = {b.index: listing.next_blocks(b.end) for b in listing.blocks if b.closed}
    left = {index for index, after in following.items() if after}
    for index in sorted(left):
        if index not in left:
            continue
        before, after = {index}, {block.index for block in following[index]}
        while True:
            joined = {i for i in left if after & {block.index for block in following[i]}}
            if joined <= before:
                break
            before |= joined
            after |= {block.index for i in joined for block in following[i]}
        left -= before
        yield _Junction(
            tuple(listing.blocks[i] for i in sorted(before)),
            tuple(listing.blocks[i] for i in sorted(after)),
        )


def _stagger_mutants(listing: Listing) -> Iterator[Mutant]:
    """The barriers outside of clusters. Those between work items are removed for all waves; the
    others one role alone executes, after a branch or in code of its own."""
    outside = [x for x in listing.lines.values() if x.mnemonic == "s_barrier" and x.block < 0]
    between = [line for line in outside if _begins_item(listing, line)]
    if between:
        edits: dict[int, tuple[str, ...]] = {line.number: () for line in between}
        what = "s_barrier between work items"
        yield _mutant(listing, "removed", what, between[0].number, edits, None)
    for line in outside:
        if line in between:
            continue
        role, what = _executing(listing, line), "s_barrier of the stagger"
        yield _mutant(listing, "removed", what, line.number, {line.number: ()}, role)
        after = listing.next_blocks(line.number)
        ends = tuple(b for b in listing.blocks if not b.closed and b.role == line.role)
        before = ends if not after else ()
        for operator, given in (("next", after), ("previous", before)):
            if not given:
                continue
            edits = {line.number: ()}
            for block in given:
                edits[block.end] = (*_extra(listing, block.end, role), _raw(listing, block.end))
            way = f"moved to the {operator} cluster"
            yield _mutant(listing, way, what, line.number, edits, role)


def _begins_item(listing: Listing, line: InstructionLine) -> bool:
    """Whether a barrier stands directly after the question if a work item is left."""
    order = list(listing.lines)
    at = order.index(line.number)
    compare = listing.lines[order[at - 2]].code if at > 1 else ""
    return line.section == "item" and compare == "s_cmp_ge_u32 s[ITEM], s[ITEMS]"


def _executing(listing: Listing, line: InstructionLine) -> WaveRange:
    """The role that a stagger's barrier is for, from the branch round it or the code it is in."""
    if line.role:
        return next(role for role in listing.roles if role.name == line.role)
    order = list(listing.lines)
    at = order.index(line.number)
    compare, branch = (listing.lines[number].code for number in order[at - 2 : at])
    lower, upper = sorted(listing.roles, key=lambda r: r.first)
    if compare == f"s_cmp_lt_u32 s[WAVE], {upper.first}" and branch.startswith("s_cbranch_scc"):
        return lower if branch.startswith("s_cbranch_scc0") else upper
    raise UnsupportedError(f"line {line.number}: a barrier of unknown waves ({compare}; {branch})")


def _instead(listing: Listing, number: int, role: WaveRange | None) -> tuple[str, ...]:
    """What remains of a barrier that `role` (None: everybody) no longer executes."""
    if role is None or listing.lines[number].role:
        return ()
    others = [other for other in listing.roles if other != role]
    return tuple(
        line
        for other in others
        for line in only(listing, other, "s_barrier", f".Lmutant_{number}_without")
    )


def _extra(listing: Listing, number: int, role: WaveRange | None) -> tuple[str, ...]:
    if role is None or listing.lines[number].role:
        return ("  s_barrier",)
    return only(listing, role, "s_barrier", f".Lmutant_{number}_extra")


def _raw(listing: Listing, number: int) -> str:
    return listing.text.split("\n")[number - 1]

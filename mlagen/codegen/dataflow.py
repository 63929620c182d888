"""Compares a program with its plain loop: it must do the same operations, on the same values.

Both are sequences of operations with what each reads and writes. Overlap changes their order and
nothing else: every operation of every tile is done once in both, and whatever it reads was written
by the same operation of the same tile.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effect:
    """What an operation does to storages (registers, or whatever has a name). `reads`: what it
    takes from before. `writes`: what it replaces. `may`: what it replaces unless it skips that."""

    reads: frozenset[Hashable]
    writes: frozenset[Hashable]
    may: frozenset[Hashable] = frozenset()


@dataclass(frozen=True, slots=True)
class Done:
    """An operation that is done: `key` for tile `tile` (None: of no tile). `text` and `line`: how
    the schedule writes it, and where; `cluster`: in which row. `hint`: the plain loop need not do
    it, and nothing may take what it writes."""

    key: str
    tile: int | None
    effect: Effect
    text: str
    line: int
    cluster: str = ""
    hint: bool = False

    @property
    def name(self) -> tuple[str, int | None]:
        return self.key, self.tile


# What a storage holds: who wrote it last, and, where that may be skipped, who wrote it before.
Held = tuple[Done, "Held"] | Done | None


@dataclass(frozen=True, slots=True)
class Difference:
    """`kind`: missing (never done), twice, foreign (not of the plain loop), or value: `done` reads
    `storage`, which `found` wrote in the program and `wanted` in the plain loop."""

    kind: str
    done: Done
    storage: Hashable = None
    found: Done | None = None
    wanted: Done | None = None


def differences(
    program: Sequence[Done], plain: Sequence[Done], live: Collection[Hashable] = ()
) -> list[Difference]:
    """How a program differs from its plain loop, most telling first. `live`: storages that must
    also end with the same values, because something that follows reads them."""
    asked = [done for done in program if not done.hint]
    found = _counted(asked, plain)
    if found:
        return found
    wanted, plain_end = _followed(plain)
    taken, end = _followed(program)
    for done in asked:
        found += _value(done, taken[done.name], wanted[done.name])
    if not found and program:
        ends = ({storage: held.get(storage) for storage in live} for held in (end, plain_end))
        found += _value(program[-1], *ends)
    return found


def _value(
    done: Done, mine: Mapping[Hashable, Held], other: Mapping[Hashable, Held]
) -> list[Difference]:
    """The first storage, by name, of those that hold another value than they should."""
    apart = [
        x for x in mine.keys() | other.keys()
        if (a := mine.get(x)) is not (b := other.get(x)) and not _same(a, b)
    ]  # fmt: skip
    if not apart:
        return []
    storage = min(apart, key=str)
    return [Difference("value", done, storage, *_apart(mine.get(storage), other.get(storage)))]


def inherited(program: Iterable[Done]) -> set[Hashable]:
    """Storages that are read before anything wrote them."""
    written: set[Hashable] = set()
    found: set[Hashable] = set()
    for done in program:
        found |= done.effect.reads - written
        written |= done.effect.writes
    return found


def _counted(program: Sequence[Done], plain: Sequence[Done]) -> list[Difference]:
    """Operations that are not done as often as in the plain loop, where each is done once."""
    wanted = {done.name: done for done in plain}
    seen: set[tuple[str, int | None]] = set()
    found = []
    for done in program:
        if done.name not in wanted:
            found.append(Difference("foreign", done))
        elif done.name in seen:
            found.append(Difference("twice", done))
        seen.add(done.name)
    missing = [done for name, done in wanted.items() if name not in seen]
    return [*(Difference("missing", done) for done in missing), *found]


def _followed(
    sequence: Sequence[Done],
) -> tuple[Mapping[tuple[str, int | None], Mapping[Hashable, Held]], Mapping[Hashable, Held]]:
    """What each operation reads, by name, and what everything holds at the end."""
    held: dict[Hashable, Held] = {}
    taken: dict[tuple[str, int | None], dict[Hashable, Held]] = {}
    for done in sequence:
        effect = done.effect
        taken[done.name] = {storage: held.get(storage) for storage in effect.reads}
        for storage in effect.may:
            held[storage] = (done, held.get(storage))
        for storage in effect.writes:
            held[storage] = done
    return taken, held


def _same(a: Held, b: Held) -> bool:
    while isinstance(a, tuple) and isinstance(b, tuple):
        if a[0].name != b[0].name:
            return False
        a, b = a[1], b[1]
    if isinstance(a, Done) and isinstance(b, Done):
        return a.tile == b.tile and a.key == b.key
    return a is b


def _apart(a: Held, b: Held) -> tuple[Done | None, Done | None]:
    """The first two writers that differ."""
    while isinstance(a, tuple) and isinstance(b, tuple) and a[0].name == b[0].name:
        a, b = a[1], b[1]
    return (a[0] if isinstance(a, tuple) else a), (b[0] if isinstance(b, tuple) else b)

"""How large a value becomes that a filter, a method or a format of a template makes: what can grow
much beyond its parts is estimated before it is made."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

MOST = 20_000_000  # where a count of characters ends; beyond it they are too many anyway
_DIGITS = re.compile(r"\d+")

Given = Sequence[Any]


def characters(value: Any) -> int:
    """Characters of a value's text, roughly, and little more than `MOST`: what it holds counts as
    often as it is there. Nothing of the text is made."""
    return len(value) if isinstance(value, str | bytes) else _inside(value, {})


def _inside(value: Any, known: dict[int, int]) -> int:
    """The same of what a list holds; `known`: of what was met, by `id`."""
    if isinstance(value, str | bytes):
        return len(value) + 2
    if isinstance(value, int):
        return value.bit_length() // 3 + 2
    if not isinstance(value, list | tuple | Set | Mapping):
        return 2
    count = known.get(id(value))
    if count is None:
        count, known[id(value)] = 2, 0  # a list in itself is put out once
        parts = (value.keys(), value.values()) if isinstance(value, Mapping) else (value,)
        for one in itertools.chain(*parts):
            count += _inside(one, known)
            if count > MOST:
                break
        known[id(value)] = count
    return count


def _widened(subject: Any, given: Given) -> int:
    """A text to which so many characters may be added, once."""
    return characters(subject) + _largest(given)


def _by_place(subject: Any, given: Given) -> int:
    """A text, or items, to each place of which something may be added."""
    return characters(subject) + (_length(subject) + 1) * _largest(given)


def _grouped(subject: Any, given: Given) -> int:
    """Groups of items, the last of which may be filled."""
    return _length(subject) + _largest(given)


def _joined(subject: Any, given: Given) -> int:
    return characters(subject) + (_length(subject) + 1) * _largest(given)


def _joins(separator: Any, given: Given) -> int:
    """`separator.join(items)`."""
    return sum(characters(one) + (_length(one) + 1) * _length(separator) for one in given)


def _summed(subject: Any, given: Given) -> int:
    """Items that are added one after another, each time to a new value."""
    return 0 if all(isinstance(x, int | float) for x in _some(subject)) else (
        (_length(subject) + 1) * characters(subject) // 2
    )  # fmt: skip


def formatted(text: Any, given: Given) -> int:
    """A format with its widths, and what stands in its fields."""
    if not isinstance(text, str):
        return 0
    widths = sum(int(number[:9]) for number in _DIGITS.findall(text))
    fields = text.count("%") + text.count("{")
    return len(text) + widths + fields * sum(max(characters(x), _width(x, text)) for x in given)


def _width(value: Any, text: str) -> int:
    """A number that a field may take as its width."""
    inner = [*value] if isinstance(value, tuple) else [value]
    taken = "*" in text or "{" in text
    return max((x for x in inner if taken and isinstance(x, int)), default=0)


FILTERS: dict[str, Callable[[Any, Given], int]] = {
    "center": _widened, "indent": _by_place, "replace": _by_place, "wordwrap": _by_place,
    "join": _joined, "batch": _grouped, "slice": _grouped, "format": formatted,
    "tojson": _by_place, "pprint": _by_place, "string": _widened, "truncate": _widened,
    "sum": _summed, "urlize": _by_place, "xmlattr": _widened,
}  # fmt: skip
METHODS: dict[str, Callable[[Any, Given], int]] = {
    "center": _widened, "ljust": _widened, "rjust": _widened, "zfill": _widened,
    "expandtabs": _by_place, "replace": _by_place, "translate": _by_place, "join": _joins,
    "format": formatted, "format_map": formatted, "to_bytes": _widened,
}  # fmt: skip


def _largest(given: Given) -> int:
    """The largest number, or longest text, of what a filter or method is given."""
    return max((x if isinstance(x, int) else characters(x) for x in given), default=0)


def _length(value: Any) -> int:
    return len(value) if hasattr(value, "__len__") else 0


def _some(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple | range) else ()

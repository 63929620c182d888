"""Problems from named values: what every problem class does with the fields that a user gives."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from functools import partial
from typing import Any, Self, TypeVar

from mlagen.errors import ConfigError
from mlagen.legal_names import nearest

P = TypeVar("P")
T = TypeVar("T")
Legal = str | tuple[Any, ...]

BOOLEANS = ("true", "false")
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Fields:
    """A base of problems, which are dataclasses, that makes them of plain values and back."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """The problem that named values describe; text is parsed by the field's type.

        `{"num_heads": "8", "num_kv_heads": 2, "mask": "causal"}`. Raises ConfigError for an
        unknown name, a missing field, text that is no such value, and what the class refuses.
        """
        return from_fields(cls, fields)

    def to_fields(self) -> dict[str, Any]:
        """Every field as a plain value. `from_fields` reads it back."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return {field.name: getattr(self, field.name) for field in fields}


def told(default: T = dataclasses.MISSING, *, meaning: str, legal: Legal) -> T:  # type: ignore[assignment]
    """A field of a problem's dataclass with what `mlagen list KERNEL` says of it. `legal`: the
    values that it may have, or words for them; both from the constants that the checks use."""
    return dataclasses.field(default=default, metadata={"meaning": meaning, "legal": legal})


def told_of(field: dataclasses.Field[Any]) -> tuple[str, str]:
    """A field's meaning and legal values as texts; empty where its class does not tell them."""
    legal = field.metadata.get("legal", "")
    return field.metadata.get("meaning", ""), legal if isinstance(legal, str) else listed(legal)


def from_fields(problem: type[P], fields: Mapping[str, Any]) -> P:
    """The `problem` (a dataclass) that named values describe; text is parsed by the field's type.

    Raises ConfigError for an unknown name, a missing field, text that is no such value, and what
    the class refuses.
    """
    known = {field.name: field for field in dataclasses.fields(problem)}  # type: ignore[arg-type]
    for name in fields:
        if name not in known:
            raise ConfigError(
                f"{problem.__name__} has no field {name!r}",
                hint=f"{nearest(name, known, str)}fields: {', '.join(known)}",
            )
    missing = [
        name
        for name, field in known.items()
        if field.default is dataclasses.MISSING and name not in fields
    ]
    if missing:
        raise ConfigError(f"{problem.__name__} needs {' and '.join(missing)}")
    return problem(**{n: _parsed(n, value, _kind(known[n].type)) for n, value in fields.items()})


def problem_of(problem: type[P], fields: Mapping[str, Any]) -> P:
    """The problem that `fields` describe: by the class's own `from_fields` where it has one."""
    made: P = getattr(problem, "from_fields", partial(from_fields, problem))(fields)
    return made


def example_of(problem: type[P]) -> P:
    """A legal problem: the class's own `example`, or the one with all defaults. ConfigError where
    a field without a default has neither."""
    if own := getattr(problem, "example", None):
        made: P = own()
        return made
    fields = dataclasses.fields(problem)  # type: ignore[arg-type]
    if needed := [field.name for field in fields if field.default is dataclasses.MISSING]:
        raise ConfigError(
            f"{problem.__name__} has no example(), which listing its schedules' knobs needs",
            hint=f"give {', '.join(needed)} a default, or the class an example()",
        )
    return problem()


def check_types(problem: Any) -> None:
    """ConfigError for a field of a dataclass that is none of its annotation's numbers, or neither
    true nor false. The dataclass may be frozen: numbers are converted."""
    convert = {"int": integer, "float": number, "bool": _truth}
    for field in dataclasses.fields(problem):
        kind = _kind(field.type)
        if kind in convert:
            value = convert[kind](field.name, getattr(problem, field.name))
            object.__setattr__(problem, field.name, value)


def _truth(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ConfigError(f"{name}={value!r} is not true or false")


def integer(name: str, value: Any) -> int:
    """`value` as an int. ConfigError for what is no whole number, booleans included."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise ConfigError(f"{name}={value!r} is not an integer")


def number(name: str, value: Any) -> float:
    """`value` as a float. ConfigError for what is no number, text and booleans included."""
    if isinstance(value, bool | str):
        raise ConfigError(f"{name}={value!r} is not a number")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{name}={value!r} is not a number") from None


def listed(values: tuple[Any, ...] | list[Any]) -> str:
    """Values as a sentence lists them: `a, b or c`."""
    texts = [str(value) for value in values]
    return " or ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else texts[0]


def _kind(annotation: Any) -> str:
    """An annotation's name; it is text already where the module postpones its annotations."""
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _parsed(name: str, value: Any, kind: str) -> Any:
    """Text as a value of the annotation `kind`; other values and kinds as they are."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    try:
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
        if kind == "bool":
            return _BOOLEANS[text.lower()]
    except (ValueError, KeyError):
        what = {"int": "an integer", "float": "a number", "bool": "true or false"}[kind]
        raise ConfigError(f"{name}={text!r} is not {what}") from None
    return text

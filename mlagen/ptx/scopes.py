"""Names that `{ … }` declare: registers, variables, labels and tables of labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mlagen.ptx.syntax import Operand, Vector

_COMPONENTS = "xyzw"
_COLOURS = dict(zip("rgba", _COMPONENTS, strict=True))


@dataclass(frozen=True, slots=True)
class RegisterType:
    """A register's type; `width` components, 0 for a register that is no vector."""

    name: str
    width: int = 0


@dataclass(slots=True)
class Scope:
    """A `{ … }` of a body. What inner scopes declare gets their number: `%p@3`."""

    number: int
    parent: Scope | None
    used: dict[str, str]  # of the body: the registers that it names, and their types
    outside: frozenset[str]  # of the body: the module's names
    registers: dict[str, RegisterType] = field(default_factory=dict)
    ranges: dict[str, tuple[int, RegisterType]] = field(default_factory=dict)
    symbols: set[str] = field(default_factory=set)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _known: dict[str, Operand] = field(default_factory=dict)

    def declare(self, name: str, kind: RegisterType, count: int | None) -> None:
        """A register, or `count` of them from `name0` on. ValueError where it is there already."""
        if count is None:
            if self._own(name) or name in self.symbols:
                raise ValueError(f"{name} is declared twice")
            self.registers[name] = kind
        else:
            if name in self.ranges:
                raise ValueError(f"{name}<{count}> is declared twice")
            self.ranges[name] = count, kind
        self._known.clear()

    def declare_symbol(self, name: str) -> str:
        """A variable's unique name. ValueError where the scope has it already."""
        if name in self.symbols or self._own(name):
            raise ValueError(f"{name} is declared twice")
        self.symbols.add(name)
        self._known.clear()
        return self._unique(name)

    def resolve(self, name: str) -> Operand:
        """A name as an entry's instructions have it; a vector register as its components."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._resolve(name)
        return found

    def label(self, name: str) -> int | None:
        """The instruction index of a label that can be seen from here."""
        return next((s.labels[name] for s in self.chain() if name in s.labels), None)

    def table(self, name: str) -> tuple[str, ...] | None:
        """The labels or functions of a table that can be seen from here."""
        return next((s.tables[name] for s in self.chain() if name in s.tables), None)

    def chain(self) -> Iterator[Scope]:
        """This scope and those around it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def _resolve(self, name: str) -> Operand:
        base, _, component = name.partition(".")
        for scope in self.chain():
            if base in scope.symbols:
                return scope._unique(base) + name[len(base) :]
            if kind := scope._own(base):
                return scope._register(base, kind, component)
        return name

    def _own(self, name: str) -> RegisterType | None:
        """The type of a register that this scope declares."""
        if name in self.registers:
            return self.registers[name]
        if self.ranges:
            for length in range(1, min(len(name), 10)):
                digits = name[-length:]
                if not (digits.isascii() and digits.isdigit()):
                    break
                count, kind = self.ranges.get(name[:-length], (0, None))
                if int(digits) < count and (length == 1 or digits[0] != "0"):
                    return kind
        return None

    def _register(self, name: str, kind: RegisterType, component: str) -> Operand:
        unique = self._unique(name)
        if not kind.width:
            self.used[unique] = kind.name
            return f"{unique}.{component}" if component else unique
        parts = [f"{unique}.{letter}" for letter in _COMPONENTS[: kind.width]]
        if component:
            part = f"{unique}.{_COLOURS.get(component, component)}"
            if part not in parts:
                raise ValueError(f"{name} has no component {component}")
            parts = [part]
        self.used.update(dict.fromkeys(parts, kind.name))
        return parts[0] if component else Vector(tuple(parts))

    def _unique(self, name: str) -> str:
        hides = self.parent is not None or name in self.outside
        return f"{name}@{self.number}" if hides else name

"""What one rendering of a template may take: a template that does not end is an error, at once.

The body of each loop, macro and template begins with a step, which jinja2 compiles with it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sized
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.runtime import Context

from mlagen.codegen.template_growth import FILTERS, METHODS, characters, formatted
from mlagen.errors import TemplateError

STEPS = 1_000_000  # bodies of loops and macros; the largest operation shipped takes some thousand
TAKEN = 200  # templates that an operation's template includes or imports, again and again too
TEXT = 20_000_000  # characters that are put out: 500,000 instructions
MADE = 10 * TEXT  # characters and items that filters, methods and formats make, all together
NUMBERS = 1_000_000  # of a `range`; items and characters of a product or sum
BITS = 4096  # of an integer that is multiplied or raised

_BODIES = (nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)
_COMPUTED: dict[type[nodes.Expr], str] = {
    nodes.Mul: "product", nodes.Pow: "power", nodes.Add: "total",
    nodes.Mod: "remainder",
}  # fmt: skip


@dataclass
class _Spent:
    """Of one rendering."""

    steps: int = 0
    taken: int = 0
    text: int = 0
    made: int = 0


_SPENT: ContextVar[_Spent] = ContextVar("spent")


class _BoundedContext(Context):
    """What compiled templates call methods and functions by."""

    def call(self, called: Any, *given: Any, **more: Any) -> Any:
        subject, name = getattr(called, "__self__", None), getattr(called, "__name__", "")
        if isinstance(subject, str | bytes | int):
            if name.startswith("__"):
                raise TemplateError(f"a template does not call {name}")
            if name in METHODS:
                _made(f".{name}", METHODS[name](subject, (*given, *more.values())))
        return super().call(called, *given, **more)


class BoundedEnvironment(jinja2.Environment):
    """An environment whose templates end. Errors of a bound: TemplateError, without the place."""

    context_class = _BoundedContext

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, finalize=_put_out)
        self.globals["range"] = _range
        del self.globals["lipsum"]  # text of any length
        self.filters |= {name: _bounded(name, self.filters[name]) for name in FILTERS}

    def start(self) -> None:
        """A rendering begins."""
        _SPENT.set(_Spent())

    def step(self) -> bool:
        """True, so that it may stand in a condition."""
        spent = _SPENT.get()
        spent.steps += 1
        if spent.steps > STEPS:
            raise TemplateError(f"it goes on after {STEPS} rounds of loops and calls of macros")
        return True

    def take(self) -> None:
        spent = _SPENT.get()
        spent.taken += 1
        if spent.taken > TAKEN:
            raise TemplateError(
                f"it takes in more than {TAKEN} templates; does one include or import itself?"
            )

    def product(self, a: Any, b: Any) -> Any:
        for one, other in ((a, b), (b, a)):
            if isinstance(other, int):
                _bound("a product", "items", _length(one) * other, NUMBERS)
                if isinstance(one, int):
                    _bound("a product", "bits", one.bit_length() + other.bit_length(), BITS)
        return a * b

    def power(self, a: Any, b: Any) -> Any:
        if isinstance(a, int) and isinstance(b, int):
            _bound("a power", "bits", a.bit_length() * b, BITS)
        return a**b

    def total(self, a: Any, b: Any) -> Any:
        _bound("a sum", "items", _length(a) + _length(b), NUMBERS)
        return a + b

    def remainder(self, a: Any, b: Any) -> Any:
        _made("what % formats", formatted(a, (b,)))
        return a % b

    def joined(self, *parts: Any) -> str:
        _bound("what ~ joins", "characters", sum(map(characters, parts)), NUMBERS)
        text = "".join(map(str, parts))
        _bound("what ~ joins", "characters", len(text), NUMBERS)
        return text

    def _generate(self, source: nodes.Template, *given: Any, **more: Any) -> str:
        """jinja2's hook: the nodes of a template to Python."""
        for node in [*source.find_all(_BODIES)]:
            assert isinstance(node, _BODIES)
            node.body.insert(0, nodes.ExprStmt(_call("step", [], node)))
            if isinstance(node, nodes.For) and node.test is not None:
                node.test = nodes.And(_call("step", [], node), node.test)
        source.body.insert(0, nodes.ExprStmt(_call("take", [], source)))
        _compute(source)
        return super()._generate(source, *given, **more)


def _call(name: str, arguments: list[nodes.Expr], at: nodes.Node) -> nodes.Call:
    """A call of the environment's method in the place of a node, or before it."""
    method = nodes.EnvironmentAttribute(name)
    return nodes.Call(method, arguments, [], None, None, lineno=at.lineno)


def _compute(node: nodes.Node) -> None:
    """What can make one value much larger than those it is made of is left to the environment."""
    for field, value in node.iter_fields():
        if isinstance(value, list):
            value[:] = [_computed(item) for item in value]
        elif isinstance(value, nodes.Node):
            setattr(node, field, _computed(value))


def _computed(value: Any) -> Any:
    if not isinstance(value, nodes.Node):
        return value
    _compute(value)
    if isinstance(value, nodes.Concat):
        return _call("joined", value.nodes, value)
    if isinstance(value, nodes.Mul | nodes.Pow | nodes.Add | nodes.Mod):
        return _call(_COMPUTED[type(value)], [value.left, value.right], value)
    return value


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that makes no more than a rendering may."""
    own = 1 if hasattr(function, "jinja_pass_arg") else 0  # an argument of jinja2's

    @functools.wraps(function)
    def called(*given: Any, **more: Any) -> Any:
        subject, *others = given[own:]
        _made(f"the filter {name}", FILTERS[name](subject, (*others, *more.values())))
        return function(*given, **more)

    return called


def _made(what: str, count: int) -> None:
    """Counts what is made next, before it is."""
    _bound(what, "characters or items", count, TEXT - 1)
    spent = _SPENT.get()
    spent.made += count
    _bound("what filters, methods and formats make", "characters or items", spent.made, MADE)


def _put_out(value: Any) -> str:
    spent = _SPENT.get()
    _bound("what it renders to", "characters", spent.text + characters(value), TEXT)
    text = str(value)
    spent.text += len(text)
    _bound("what it renders to", "characters", spent.text, TEXT)
    return text


def _range(*given: int) -> range:
    numbers = range(*given)
    # `len` takes no more than 63 bits.
    count = max(0, (numbers.stop - numbers.start) // numbers.step)
    _bound(f"range{given}" if len(given) > 1 else f"range({given[0]})", "numbers", count, NUMBERS)
    return numbers


def _length(value: Any) -> int:
    return len(value) if isinstance(value, Sized) else 0


def _bound(what: str, unit: str, count: int, limit: int) -> None:
    if count > limit:
        raise TemplateError(f"{what} has {count} {unit}, more than {limit}")

"""The engine's Python to LLVM code, in one pass over its syntax trees.

numba infers the types of a function variable by variable before it lowers anything, which took most
of the engine's compilation. The engine is written in a few words of Python - numbers, calls,
branches, loops - so that an expression's type is known when it is met. What operators, casts,
mathematical functions and intrinsics mean is still numba's word: each is looked up once for the
types of its operands.

A name may stand for values of several types, one after the other. Where two ways through a function
meet with different whole numbers, the function is lowered again with the wider type for the name;
other types must not meet.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils

_I1 = ir.IntType(1)
_I64 = ir.IntType(64)

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_WHOLE = (types.Integer, types.Boolean)
_ASSUMED = {"int": types.int64, "bool": types.boolean, "float": types.float32, "None": types.none}


@dataclass(frozen=True)
class EngineFunction:
    """A function of the engine that only the engine calls; `spliced`: LLVM has to inline it."""

    function: FunctionType
    spliced: bool

    def __call__(self, *args: Any, **kws: Any) -> Any:
        """A call from Python."""
        raise TypeError(f"only the engine's compiled code can call {self.function.__name__}")


@dataclass(frozen=True)
class TypedValue:
    """An LLVM value and its numba type; several of them, as a tuple, for several values."""

    kind: Any
    code: Any


_NOTHING = TypedValue(types.none, None)


@dataclass(frozen=True)
class _Lowered:
    """LLVM's function, and the type of what it returns."""

    code: Any
    result: Any


@dataclass(frozen=True)
class _Loop:
    """Where `continue` and `break` go, and what names stand for on each way out of the body."""

    more: Any
    after: Any
    ways: list[dict[str, Any]]


class _WiderError(Exception):
    """A name was taken for a narrower type than it has."""

    def __init__(self, name: str, kind: Any) -> None:
        super().__init__(name)
        self.name, self.kind = name, kind


class _RefusedError(TypeError):
    """Source that cannot be lowered, with its file and line."""


_RESULT = "return"  # the name under which the type of the result is kept


@cache
def _functions(module: ModuleType) -> dict[int, ast.FunctionDef]:
    """Functions of a module by the line of their first decorator."""
    tree = ast.parse(inspect.getsource(module))
    found = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return {min([d.lineno for d in node.decorator_list] or [node.lineno]): node for node in found}


@dataclass
class LoweredModule:
    """Parts that are lowered into one LLVM module, each once for the types that it is called with.

    `target` and `typing`: numba's contexts, which say what operators and intrinsics mean.
    """

    module: Any
    target: Any
    typing: Any
    _parts: dict[tuple[EngineFunction, tuple[Any, ...]], _Lowered] = field(default_factory=dict)
    _operations: dict[tuple[int, tuple[Any, ...]], tuple[Any, Any]] = field(default_factory=dict)

    @property
    def parts(self) -> int:
        """Functions lowered so far."""
        return len(self._parts)

    def lower(self, part: EngineFunction, kinds: tuple[Any, ...]) -> _Lowered:
        """The LLVM function of a part for arguments of these types."""
        known = self._parts.get((part, kinds))
        if known is None:
            assumed: dict[str, Any] = {}
            while known is None:
                try:
                    known = _Function(self, part, kinds, assumed).lowered()
                except _WiderError as wider:
                    assumed[wider.name] = wider.kind
            self._parts[part, kinds] = known
        return known

    def operate(self, builder: Any, function: Any, operands: tuple[TypedValue, ...]) -> TypedValue:
        """Apply an operator, a cast, a function of `math` or numpy, or an intrinsic."""
        kinds = tuple(operand.kind for operand in operands)
        known = self._operations.get((id(function), kinds))
        if known is None:
            described = self.typing.resolve_value_type(function)
            signature = self.typing.resolve_function_type(described, kinds, {})
            if signature is None:
                raise TypeError(f"{function} does not take {', '.join(map(str, kinds))}")
            known = signature, self.target.get_function(described, signature)
            self._operations[id(function), kinds] = known
        signature, generate = known
        args = [
            self.cast(builder, operand, kind).code
            for operand, kind in zip(operands, signature.args, strict=True)
        ]
        return TypedValue(signature.return_type, generate(builder, args))

    def cast(self, builder: Any, value: TypedValue, kind: Any) -> TypedValue:
        if value.kind == kind:
            return value
        return TypedValue(kind, self.target.cast(builder, value.code, value.kind, kind))

    def joined(self, first: Any, second: Any) -> Any:
        """The type that holds values of both."""
        if first == second:
            return first
        kind = None
        if not isinstance(first, tuple) and not isinstance(second, tuple):
            kind = self.typing.unify_pairs(first, second)
        if kind is None:
            raise TypeError(f"{first} here and {second} there")
        return kind

    def shape(self, kind: Any) -> Any:
        """LLVM's type."""
        if kind == types.none:
            return ir.VoidType()
        if isinstance(kind, tuple):
            return ir.LiteralStructType([self.shape(one) for one in kind])
        return self.target.get_value_type(kind)


class _Function:
    """One function while it is lowered."""

    def __init__(
        self,
        program: LoweredModule,
        part: EngineFunction,
        kinds: tuple[Any, ...],
        assumed: dict[str, Any],
    ) -> None:
        self.program, self.part, self.assumed = program, part, assumed
        module = inspect.getmodule(part.function)
        if module is None:
            raise TypeError(f"{part.function.__qualname__} is in no module")
        self.file = inspect.getfile(module)
        self.node = _functions(module)[part.function.__code__.co_firstlineno]
        self.names = vars(module)
        self.kinds = kinds
        self.kind_of: dict[str, Any] = {}  # at this point; None: one of several
        self.places: dict[tuple[str, Any], Any] = {}
        self.loops: list[_Loop] = []
        self.returned: Any = None

    def lowered(self) -> _Lowered:
        """Lower the body into a new function of the module."""
        module, shape = self.program.module, self.program.shape
        returns = self.node.returns
        text = ast.unparse(returns) if returns is not None else "None"
        self.result = self.assumed.get(_RESULT, _ASSUMED.get(text, types.none))
        name = f"{self.names['__name__'].rpartition('.')[2]}.{self.node.name}"
        function = ir.Function(
            module,
            ir.FunctionType(shape(self.result), [shape(kind) for kind in self.kinds]),
            module.get_unique_name(name),
        )
        function.linkage = "internal"
        function.attributes.add("nounwind")
        if self.part.spliced:
            function.attributes.add("alwaysinline")
        try:
            self._fill(function)
        except BaseException:
            del module.globals[function.name]
            raise
        return _Lowered(function, self.result)

    def _fill(self, function: Any) -> None:
        entry = function.append_basic_block("entry")
        body = function.append_basic_block("body")
        self.builder = ir.IRBuilder(body)
        for argument, kind, code in zip(
            self.node.args.args, self.kinds, function.args, strict=True
        ):
            self.assign(argument.arg, TypedValue(kind, code))
        self.run(self.node.body)
        if not self.builder.block.is_terminated:
            if self.result == types.none:
                self.builder.ret_void()
            else:
                self.builder.unreachable()
        found = types.none if self.returned is None else self.returned
        if found != self.result:
            raise _WiderError(_RESULT, found)
        ir.IRBuilder(entry).branch(body)

    # ---- names

    def assign(self, name: str, value: TypedValue) -> None:
        if name in self.assumed and isinstance(value.kind, _WHOLE):
            value = self.program.cast(self.builder, value, self.assumed[name])
        if (name, value.kind) not in self.places:
            shape = self.program.shape(value.kind)
            place = cgutils.alloca_once(self.builder, shape, name=name)
            self.places[name, value.kind] = place
        self.kind_of[name] = value.kind
        self.builder.store(value.code, self.places[name, value.kind])

    def met(self, *ways: dict[str, Any]) -> None:
        """Several ways through the function meet here: what its names stand for on each."""
        self.kind_of = {}
        for name in dict.fromkeys(name for way in ways for name in way):
            kinds = list(dict.fromkeys(way[name] for way in ways if name in way))
            if len(kinds) > 1 and all(isinstance(kind, _WHOLE) for kind in kinds):
                wider = self.program.typing.unify_types(*kinds)
                if isinstance(wider, _WHOLE):
                    raise _WiderError(name, wider)
            self.kind_of[name] = kinds[0] if len(kinds) == 1 else None

    def constant(self, node: ast.expr) -> Any:
        """What a name of the module, a member of one, or an expression of numbers stands for.

        None for what is known at run time only.
        """
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            if node.id in self.kind_of:
                return None
            return self.names[node.id] if node.id in self.names else getattr(builtins, node.id)
        if isinstance(node, ast.Attribute):
            owner = self.constant(node.value)
            return None if owner is None else getattr(owner, node.attr)
        if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
            number = self.constant(node.operand)
            return None if number is None else _OPERATORS[type(node.op)](number)
        return None

    # ---- statements

    def run(self, body: list[ast.stmt]) -> None:
        for node in body:
            if self.builder.block.is_terminated:
                return  # after a return, a break, a continue
            self.dispatch("run", node)

    def dispatch(self, what: str, node: ast.AST) -> Any:
        """Call the method for a node; whatever is wrong there names its line."""
        method = getattr(self, f"{what}_{type(node).__name__}", None)
        try:
            if method is None:
                raise TypeError("compiled code of the engine has no such words")
            return method(node)
        except (_WiderError, _RefusedError):
            raise
        except Exception as error:
            line = getattr(node, "lineno", self.node.lineno)
            text = ast.unparse(node).splitlines()[0]
            raise _RefusedError(f"{self.file}:{line}: {text}: {error}") from error

    def run_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.value(node.value)

    def run_Assign(self, node: ast.Assign) -> None:
        (target,) = node.targets
        if isinstance(target, ast.Name):
            self.assign(target.id, self.value(node.value))
            return
        if not isinstance(target, ast.Tuple):
            raise TypeError("only names are assigned to")
        if isinstance(node.value, ast.Tuple):
            values = [self.value(one) for one in node.value.elts]
        else:
            whole = self.value(node.value)
            values = [
                TypedValue(kind, self.builder.extract_value(whole.code, i))
                for i, kind in enumerate(whole.kind)
            ]
        for name, value in zip(target.elts, values, strict=True):
            if not isinstance(name, ast.Name):
                raise TypeError("only names are assigned to")
            self.assign(name.id, value)

    def run_AugAssign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise TypeError("only names are assigned to")
        operands = self.read(node.target.id), self.value(node.value)
        function = _OPERATORS[type(node.op)]
        self.assign(node.target.id, self.program.operate(self.builder, function, operands))

    def run_Return(self, node: ast.Return) -> None:
        if node.value is None:
            value = _NOTHING
        elif isinstance(node.value, ast.Tuple):
            values = [self.value(one) for one in node.value.elts]
            kinds = tuple(value.kind for value in values)
            code = ir.Constant(self.program.shape(kinds), ir.Undefined)
            for i, value in enumerate(values):
                code = self.builder.insert_value(code, value.code, i)
            value = TypedValue(kinds, code)
        else:
            value = self.value(node.value)
        joined = self.program.joined
        self.returned = value.kind if self.returned is None else joined(self.returned, value.kind)
        if self.returned != self.result and (self.result == types.none or value == _NOTHING):
            raise _WiderError(_RESULT, self.returned)
        if isinstance(value.kind, tuple) and value.kind != self.result:
            raise _WiderError(_RESULT, value.kind)
        if value.kind == types.none:
            self.builder.ret_void()
        else:
            self.builder.ret(self.program.cast(self.builder, value, self.result).code)

    def run_If(self, node: ast.If) -> None:
        yes, no = self.block("then"), self.block("else")
        after = self.block("after") if node.orelse else no
        self.branch(node.test, yes, no)
        before, ways = self.kind_of, []
        for block, body in ((yes, node.body), (no, node.orelse)):
            self.kind_of = dict(before)
            if block is not after:
                self.builder.position_at_end(block)
                self.run(body)
            if block is after or not self.builder.block.is_terminated:
                ways.append(self.kind_of)
            if block is not after:
                self.go(after)
        self.met(*ways)
        self.builder.position_at_end(after)

    def run_While(self, node: ast.While) -> None:
        head, body, after = self.block("head"), self.block("loop"), self.block("after")
        self.builder.branch(head)
        self.builder.position_at_end(head)
        self.branch(node.test, body, after)
        self.builder.position_at_end(body)
        self.repeat(node.body, head, after)
        self.builder.position_at_end(after)

    def run_For(self, node: ast.For) -> None:
        """`for name in range(...)`, with a step that is a constant."""
        if not isinstance(node.iter, ast.Call) or not isinstance(node.target, ast.Name):
            raise TypeError("loops go over ranges")
        if self.constant(node.iter.func) is not range:
            raise TypeError("loops go over ranges")
        asked = node.iter.args
        step = int(self.constant(asked[2])) if len(asked) == 3 else 1
        first = self.value(asked[0]) if len(asked) > 1 else TypedValue(types.int64, _I64(0))
        limit = self.value(asked[1] if len(asked) > 1 else asked[0])
        start, stop = (self.program.cast(self.builder, v, types.int64).code for v in (first, limit))
        place = cgutils.alloca_once(self.builder, _I64)
        self.builder.store(start, place)
        head, body = self.block("head"), self.block("loop")
        more, after = self.block("more"), self.block("after")
        self.builder.branch(head)
        self.builder.position_at_end(head)
        index = self.builder.load(place)
        self.builder.cbranch(
            self.builder.icmp_signed("<" if step > 0 else ">", index, stop), body, after
        )
        self.builder.position_at_end(body)
        self.assign(node.target.id, TypedValue(types.int64, index))
        self.repeat(node.body, more, after)
        self.builder.position_at_end(more)
        self.builder.store(self.builder.add(index, _I64(step), flags=("nsw",)), place)
        self.builder.branch(head)
        self.builder.position_at_end(after)

    def repeat(self, body: list[ast.stmt], more: Any, after: Any) -> None:
        """The body of a loop, which `continue` leaves for `more`, `break` for `after`."""
        before = dict(self.kind_of)
        self.loops.append(_Loop(more, after, [before]))
        self.run(body)
        loop = self.loops.pop()
        if not self.builder.block.is_terminated:
            loop.ways.append(self.kind_of)
        self.go(more)
        self.met(*loop.ways)
        for name, kind in before.items():
            if self.kind_of[name] != kind:
                raise TypeError(f"{name} is of another type after the loop")

    def run_Continue(self, node: ast.Continue) -> None:
        self.leave(self.loops[-1].more)

    def run_Break(self, node: ast.Break) -> None:
        self.leave(self.loops[-1].after)

    def leave(self, block: Any) -> None:
        self.loops[-1].ways.append(self.kind_of)
        self.builder.branch(block)

    # ---- conditions

    def block(self, name: str) -> Any:
        return self.builder.append_basic_block(name)

    def go(self, block: Any) -> None:
        if not self.builder.block.is_terminated:
            self.builder.branch(block)

    def truth(self, value: TypedValue) -> Any:
        if value.kind == types.boolean:
            return value.code
        return self.program.target.is_true(self.builder, value.kind, value.code)

    def branch(self, test: ast.expr, yes: Any, no: Any) -> None:
        """Go to `yes` or `no`, with no more of the test than decides it."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.branch(test.operand, no, yes)
        elif isinstance(test, ast.BoolOp):
            for part in test.values[:-1]:
                following = self.block("and" if isinstance(test.op, ast.And) else "or")
                if isinstance(test.op, ast.And):
                    self.branch(part, following, no)
                else:
                    self.branch(part, yes, following)
                self.builder.position_at_end(following)
            self.branch(test.values[-1], yes, no)
        else:
            self.builder.cbranch(self.truth(self.value(test)), yes, no)

    # ---- values

    def read(self, name: str) -> TypedValue:
        kind = self.kind_of[name]
        if kind is None:
            raise TypeError(f"{name} is of several types here: give each a name of its own")
        return TypedValue(kind, self.builder.load(self.places[name, kind]))

    def value(self, node: ast.expr) -> TypedValue:
        known = self.constant(node)
        if known is None:
            return self.dispatch("value", node)
        kind = numba.typeof(known)
        return TypedValue(kind, self.program.target.get_constant(kind, known))

    def value_Name(self, node: ast.Name) -> TypedValue:
        return self.read(node.id)

    def value_BinOp(self, node: ast.BinOp) -> TypedValue:
        operands = self.value(node.left), self.value(node.right)
        return self.program.operate(self.builder, _OPERATORS[type(node.op)], operands)

    def value_UnaryOp(self, node: ast.UnaryOp) -> TypedValue:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return TypedValue(types.boolean, self.builder.not_(self.truth(value)))
        return self.program.operate(self.builder, _OPERATORS[type(node.op)], (value,))

    def value_Compare(self, node: ast.Compare) -> TypedValue:
        (relation,), (right,) = node.ops, node.comparators
        operands = self.value(node.left), self.value(right)
        return self.program.operate(self.builder, _OPERATORS[type(relation)], operands)

    def value_BoolOp(self, node: ast.BoolOp) -> TypedValue:
        """The first operand that decides, as Python has it."""
        first, rest = node.values[0], node.values[1:]
        value = self.value(first)
        test = self.truth(value)
        other = ast.copy_location(ast.BoolOp(node.op, rest), node) if rest[1:] else rest[0]

        def later() -> TypedValue:
            return self.value(other)

        if isinstance(node.op, ast.And):
            return self.either(test, later, lambda: value)
        return self.either(test, lambda: value, later)

    def value_IfExp(self, node: ast.IfExp) -> TypedValue:
        yes, no, after = self.block("then"), self.block("else"), self.block("after")
        self.branch(node.test, yes, no)
        return self.meet(
            (yes, lambda: self.value(node.body)), (no, lambda: self.value(node.orelse)), after
        )

    def either(
        self, test: Any, first: Callable[[], TypedValue], second: Callable[[], TypedValue]
    ) -> TypedValue:
        yes, no, after = self.block("then"), self.block("else"), self.block("after")
        self.builder.cbranch(test, yes, no)
        return self.meet((yes, first), (no, second), after)

    def meet(self, *ways: Any) -> TypedValue:
        """The value of whichever block was gone through, in the block after both."""
        *branches, after = ways
        ends = []
        for block, make in branches:
            self.builder.position_at_end(block)
            value = make()
            ends.append((self.builder.block, value))
        first, second = (value.kind for _, value in ends)
        kind = first if first == second else self.program.typing.unify_pairs(first, second)
        found = []
        for block, value in ends:
            self.builder.position_at_end(block)
            found.append((self.program.cast(self.builder, value, kind).code, self.builder.block))
            self.builder.branch(after)
        self.builder.position_at_end(after)
        phi = self.builder.phi(self.program.shape(kind))
        for code, block in found:
            phi.add_incoming(code, block)
        return TypedValue(kind, phi)

    def value_Call(self, node: ast.Call) -> TypedValue:
        function = self.constant(node.func)
        if node.keywords or function is None:
            raise TypeError("only functions of the module are called, by position")
        values = tuple(self.value(argument) for argument in node.args)
        if function is min or function is max:
            return self.extremum(operator.lt if function is min else operator.gt, values)
        if not isinstance(function, EngineFunction):
            return self.program.operate(self.builder, function, values)
        lowered = self.program.lower(function, tuple(value.kind for value in values))
        return TypedValue(
            lowered.result, self.builder.call(lowered.code, [value.code for value in values])
        )

    def extremum(self, before: Any, values: tuple[TypedValue, ...]) -> TypedValue:
        """The first of the values that no other one lies before."""
        best = values[0]
        for value in values[1:]:
            kind = self.program.typing.unify_pairs(best.kind, value.kind)
            best, value = (self.program.cast(self.builder, v, kind) for v in (best, value))
            first = self.program.operate(self.builder, before, (value, best))
            best = TypedValue(kind, self.builder.select(first.code, value.code, best.code))
        return best

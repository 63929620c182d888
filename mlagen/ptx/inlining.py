"""A kernel without calls: the bodies of the device functions that it calls, in their places.

Each call gets a copy of its own: registers, `.local` and `.param` variables of copy 4 are named
`x@c4`. Variables in other spaces are the function's, one for all copies: `x@f`. A parameter that
the caller passes in a `.param` variable is that variable; one that it passes in a register gets a
variable, stored to before the copy. A `ret` becomes a branch to the copy's end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mlagen.errors import UnsupportedError
from mlagen.ptx.positions import most
from mlagen.ptx.syntax import (
    Address,
    Entry,
    Function,
    Instruction,
    Location,
    MemoryOperand,
    Module,
    Operand,
    Parameter,
    Real,
    Variable,
    Vector,
)

INSTRUCTIONS = 200_000  # of a kernel with all copies
CHARACTERS = 1 << 25  # of the same
COPIES = 10_000
_DEPTH = 64  # of calls in each other
# The driver's functions, which have no body in any text; `__nv_…` are the compiler's library.
_SYSTEM = frozenset(("vprintf", "__assertfail", "malloc", "free", "__trap"))
_PRIVATE = ("local", "param")


def inlined(module: Module, entry: Entry) -> Entry:
    """`entry` with every direct call replaced by the function's body.

    Calls of the driver's functions stay. Raises UnsupportedError with the line and the function's
    name for recursion, an indirect call, a function without a body, arguments that do not fit,
    and for a kernel that grows beyond INSTRUCTIONS, CHARACTERS or COPIES."""
    if not any(instruction.name == "call" for instruction in entry.instructions):
        return entry
    work = _Work(module, entry)
    names = {v.name: v.size for v in entry.variables if v.space == "param"}
    names.update((p.name, p.size) for p in entry.parameters)
    work.body(entry.instructions, _Copy(None, {}, names, None), ())
    return replace(
        entry,
        instructions=tuple(work.out),
        variables=tuple(work.variables.values()),
        registers=work.registers,
    )


@dataclass(frozen=True, slots=True)
class _Copy:
    """A body that is written out. `names` are new ones by those of the function's text; `spaces`
    the parameter variables that its calls can name (new names), and their bytes."""

    function: Function | None
    names: Mapping[str, str]
    spaces: Mapping[str, int]
    call: Location | None
    places: dict[int, Location] = field(default_factory=dict)  # by id of the function's

    def name(self, name: str) -> str:
        """A register or symbol as the kernel has it; a component goes with its register."""
        found = self.names.get(name)
        if found is None and "." in name:
            base, dot, component = name.partition(".")
            found = f"{self.names.get(base, base)}{dot}{component}"
        return name if found is None else found

    def operand(self, operand: Operand) -> Operand:
        """An operand with the kernel's names."""
        if not self.names or isinstance(operand, int | Real):
            return operand
        if isinstance(operand, str):
            return f"!{self.name(operand[1:])}" if operand[:1] == "!" else self.name(operand)
        if isinstance(operand, Vector):
            return Vector(tuple(self.operand(item) for item in operand.items))
        if isinstance(operand, Address):
            return Address(self.name(operand.symbol), operand.offset)
        coordinates = tuple(self.operand(item) for item in operand.coordinates)
        return MemoryOperand(self.name(operand.base), operand.offset, coordinates)

    def instruction(self, made: Instruction, index: int) -> Instruction:
        """An instruction at its new place; branches go where the function's text says."""
        guard = made.guard
        label = made.name in ("bra", "brx")  # the last operand is no register
        given = made.operands[:-1] if label else made.operands
        return replace(
            made,
            index=index,
            operands=(*map(self.operand, given), *made.operands[len(given) :]),
            guard=replace(guard, register=self.name(guard.register)) if guard else None,
            location=self.place(made.location),
        )

    def place(self, found: Location | None) -> Location | None:
        """A place of the function, inlined at the call."""
        if found is None or self.function is None or self.call is None:
            return found
        known = self.places.get(id(found))  # the function's text keeps it
        if known is None:
            outer = self.place(found.inlined_at) if found.inlined_at else self.call
            name = found.function or self.function.name
            known = replace(found, inlined_at=outer, function=name)
            self.places[id(found)] = known
        return known


class _Work:
    """The kernel on its way."""

    def __init__(self, module: Module, entry: Entry) -> None:
        self._functions = {function.name: function for function in module.functions}
        self._copies, self._text = 0, 0
        self.out: list[Instruction] = []
        self.registers = dict(entry.registers)
        # Functions may name what the module declares behind the kernel.
        self.variables = {v.name: v for v in (*module.variables, *entry.variables)}

    def body(
        self, instructions: tuple[Instruction, ...], copy: _Copy, around: tuple[str, ...]
    ) -> None:
        """Writes a body out; `around` are the functions that it is in."""
        starts: list[int] = []
        branches: list[tuple[int, Instruction]] = []  # where one is, and what its text says
        for made in instructions:
            starts.append(len(self.out))
            if made.name == "call" and (function := self._callee(made, copy)):
                self._call(made, function, copy, around)
                continue
            self.grow(made)
            if made.name in ("bra", "brx") or (made.name == "ret" and copy.function):
                branches.append((len(self.out), made))
            self.out.append(copy.instruction(made, len(self.out)))
        starts.append(len(self.out))
        for at, made in branches:
            self.out[at] = _aimed(self.out[at], made, starts)

    def _callee(self, made: Instruction, copy: _Copy) -> Function | None:
        """The function of a call; None for the driver's."""
        results, name, arguments, more = _called(made)
        if more or name[0] == "%" or copy.name(name) in self.registers:
            raise UnsupportedError(f"line {made.line}: an indirect call: {made.text[:80]}")
        function = self._functions.get(name)
        if function is None:
            if name in _SYSTEM or name.startswith("__nv"):
                return None
            raise UnsupportedError(f"line {made.line}: {name[:80]} is called and has no body")
        if len(results) > len(function.results) or len(arguments) != len(function.parameters):
            raise _unfit(made, name)
        return function

    def _call(
        self, made: Instruction, function: Function, caller: _Copy, around: tuple[str, ...]
    ) -> None:
        if function.name in around:
            circle = " → ".join((*around[around.index(function.name) :], function.name))
            raise UnsupportedError(f"line {made.line}: recursion: {circle[:160]}")
        self._copies += 1
        most(self._copies, COPIES, made.line, "calls of functions that are inlined")
        most(len(around) + 1, _DEPTH, made.line, "calls in each other")
        results, _, arguments, _ = _called(made)
        skip = self._skip(made, caller) if made.guard else None
        call = _Call(self, made, function, caller, f"@c{self._copies}")
        for parameter, given in zip(function.parameters, arguments, strict=True):
            call.argument(parameter, given)
        for at, parameter in enumerate(function.results):
            call.result(parameter, results[at] if at < len(results) else "_")
        names = {**call.names, **self._declared(function, call.suffix, made)}
        private: list[Variable | Parameter] = [v for v in function.variables if v.space == "param"]
        private += [p for p in (*function.parameters, *function.results) if p.space == "param"]
        spaces = {names[v.name]: v.size for v in private}
        copy = _Copy(function, names, spaces, caller.place(made.location))
        self.body(function.instructions, copy, (*around, function.name))
        for opcode, operands in call.after:
            self.add(made, caller, opcode, operands)
        if skip is not None:
            self.out[skip] = replace(self.out[skip], target=len(self.out))

    def _declared(self, function: Function, suffix: str, made: Instruction) -> dict[str, str]:
        """New names of a function's registers and variables, which the kernel gets."""
        names = {name: f"{name}{suffix}" for name in function.registers}
        self.registers.update((names[n], kind) for n, kind in function.registers.items())
        for variable in function.variables:
            own = variable.space in _PRIVATE
            name = f"{variable.name}{suffix if own else f'@{function.name}'}"
            names[variable.name] = name
            self.declare(replace(variable, name=name), made)
        return names

    def _skip(self, made: Instruction, caller: _Copy) -> int:
        """Writes the branch around a call that has a guard."""
        assert made.guard is not None
        self.grow(made)
        around = replace(made, guard=replace(made.guard, negated=not made.guard.negated))
        self.out.append(
            replace(caller.instruction(around, len(self.out)), opcode="bra", parts=("bra",),
                    operands=("",))
        )  # fmt: skip
        return len(self.out) - 1

    def declare(self, variable: Variable, made: Instruction) -> None:
        """One more variable of the kernel."""
        self.variables[variable.name] = variable
        most(len(self.variables), INSTRUCTIONS, made.line, "variables with inlined functions")

    def grow(self, made: Instruction) -> None:
        """Refuses one more instruction, like `made`, where that is too much."""
        most(len(self.out) + 1, INSTRUCTIONS, made.line, "instructions with inlined functions")
        self._text += len(made.text)
        most(self._text, CHARACTERS, made.line, "characters with inlined functions")

    def add(
        self, made: Instruction, caller: _Copy, opcode: str, operands: tuple[Operand, ...]
    ) -> None:
        """An instruction that hands a parameter over, in the place of the call `made`. Its
        operands have the kernel's names."""
        self.grow(made)
        self.out.append(
            replace(made, index=len(self.out), opcode=opcode, parts=tuple(opcode.split(".")),
                    operands=operands, guard=None, location=caller.place(made.location))
        )  # fmt: skip


class _Call:
    """How one call hands its parameters over: `names` of the function's, and what is to be done
    `after` its body."""

    def __init__(
        self, work: _Work, made: Instruction, function: Function, caller: _Copy, suffix: str
    ) -> None:
        self._work, self._made, self._caller = work, made, caller
        self._function, self.suffix = function, suffix
        self.names: dict[str, str] = {}
        self.after: list[tuple[str, tuple[Operand, ...]]] = []

    def argument(self, parameter: Parameter, text: Operand) -> None:
        """Hands over what the caller passes."""
        given = self._caller.operand(text)
        variable = self._variable(given, parameter)
        new, kind = f"{parameter.name}{self.suffix}", parameter.type
        self.names[parameter.name] = new
        if parameter.space == "reg":
            self._work.registers[new] = kind
            source = (
                (f"ld.param.{kind}", MemoryOperand(variable, 0))
                if variable
                else (f"mov.{kind}", given)
            )
            self._work.add(self._made, self._caller, source[0], (new, source[1]))
        elif variable:
            self.names[parameter.name] = variable
        else:
            self._slot(parameter, new)
            self._work.add(
                self._made, self._caller, f"st.param.{kind}", (MemoryOperand(new, 0), given)
            )

    def result(self, parameter: Parameter, text: Operand) -> None:
        """Says where the caller gets a result from."""
        target = self._caller.operand(text)
        variable = self._variable(target, parameter)
        if variable in self.names.values():  # written while it is an argument still
            raise _unfit(self._made, self._function.name)
        new, kind = f"{parameter.name}{self.suffix}", parameter.type
        self.names[parameter.name] = new
        if parameter.space == "reg":
            self._work.registers[new] = kind
            if variable:
                self.after.append((f"st.param.{kind}", (MemoryOperand(variable, 0), new)))
            elif target != "_":
                self.after.append((f"mov.{kind}", (target, new)))
        elif variable:
            self.names[parameter.name] = variable
        else:
            self._slot(parameter, new)
            if target != "_":
                self.after.append((f"ld.param.{kind}", (target, MemoryOperand(new, 0))))

    def _variable(self, given: Operand, parameter: Parameter) -> str:
        """The parameter variable that an operand names, "" for a register or a number."""
        size = self._caller.spaces.get(given) if isinstance(given, str) else None
        if size is None:
            if isinstance(given, MemoryOperand | Address | Vector):
                raise _unfit(self._made, self._function.name)
            return ""
        if size != parameter.size:
            raise _unfit(self._made, self._function.name)
        return str(given)

    def _slot(self, parameter: Parameter, name: str) -> None:
        made = self._made
        self._work.declare(
            Variable("param", name, parameter.size, parameter.align, made.line, parameter.type),
            made,
        )


def _called(
    made: Instruction,
) -> tuple[tuple[Operand, ...], str, tuple[Operand, ...], tuple[Operand, ...]]:
    """Results, function, arguments, and what more a call has (the prototype of an indirect one)."""
    given = list(made.operands)
    results = given.pop(0) if given and isinstance(given[0], Vector) else Vector(())
    name = given.pop(0) if given else None
    arguments = given.pop(0) if given and isinstance(given[0], Vector) else Vector(())
    if not isinstance(name, str) or not isinstance(results, Vector):
        raise UnsupportedError(f"line {made.line}: not understood: {made.text[:60]}")
    assert isinstance(arguments, Vector)
    return results.items, name, arguments.items, tuple(given)


def _aimed(copied: Instruction, made: Instruction, starts: list[int]) -> Instruction:
    """A branch that goes to new places; a `ret` goes to the end."""
    if made.name == "ret":
        opcode = made.opcode.replace("ret", "bra", 1)
        return replace(copied, opcode=opcode, parts=tuple(opcode.split(".")), operands=("",),
                       target=starts[-1])  # fmt: skip
    target = starts[made.target] if made.target >= 0 else -1
    return replace(copied, target=target, targets=tuple(starts[t] for t in made.targets))


def _unfit(made: Instruction, name: str) -> UnsupportedError:
    return UnsupportedError(
        f"line {made.line}: the arguments are not those of {name[:80]}: {made.text[:80]}"
    )

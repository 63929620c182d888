"""A kernel's PTX as the tables that the engine executes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.host.entries import LIMITED, machine_of, parameter_places
from mlagen.emulator.ptx.host.variables import GlobalVariable, place_variables
from mlagen.emulator.ptx.translate import agents, branches, matrix, memory, tensor, values
from mlagen.emulator.ptx.translate.kept_loads import mark_loads
from mlagen.emulator.ptx.translate.rows import (
    OperandError,
    Special,
    Translation,
    Translator,
    not_modelled,
)
from mlagen.errors import MlagenError, UnsupportedError
from mlagen.ptx import Entry, Module
from mlagen.ptx.inlining import inlined

_TRANSLATIONS: dict[str, Translation] = {
    name: translation
    for module in (branches, values, memory, agents, matrix, tensor)
    for name, translation in module.TRANSLATIONS.items()
}

# What a translation raises where an instruction has not the operands or modifiers that it looks at.
_MISREAD = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, StopIteration)


@dataclass(frozen=True)
class Program:
    """An entry, its rows, and what a launch has to set up for it.

    `symbols`: state space and address of each variable. `dynamic`: where the launch's shared memory
    begins, after the static variables. `tensor`: it has tensor memory. `loads`: some of its loads
    are kept (order.loads). `edits`: it edits tensor maps.
    """

    entry: Entry
    rows: np.ndarray
    lists: np.ndarray
    constants: np.ndarray
    register_bytes: int
    specials: tuple[Special, ...]
    symbols: Mapping[str, tuple[str, int]]
    parameters: Mapping[str, int]
    parameter_bytes: int
    dynamic: int
    local_bytes: int
    const: np.ndarray
    globals: tuple[GlobalVariable, ...]
    tensor: bool = False
    loads: bool = False
    edits: bool = False


# The last few kernels with their tables, to which nothing writes.
_LAST: deque[tuple[Module, Entry, Program]] = deque(maxlen=4)


def translate(module: Module, entry: Entry) -> Program:
    """Tables of a kernel. UnsupportedError with the line for what is not modelled."""
    for known, of, program in tuple(_LAST):
        if known is module and of is entry:
            return program
    program = _translated(module, entry)
    _LAST.append((module, entry, program))
    return program


def _translated(module: Module, entry: Entry) -> Program:
    entry = inlined(module, entry)
    parameters, parameter_bytes = parameter_places(entry)
    variables = place_variables(entry, module.target)
    symbols = {
        **variables.symbols,
        **{name: ("param", offset) for name, offset in parameters.items()},
    }
    translator = Translator(entry, symbols)
    has = machine_of(module.target).only
    rows = []
    for instruction in entry.instructions:
        translation = _TRANSLATIONS.get(".".join(instruction.parts[:2]))
        translation = translation or _TRANSLATIONS.get(instruction.name)
        if translation is None:
            raise not_modelled(instruction)
        if instruction.name in LIMITED and instruction.name not in has:
            raise not_modelled(instruction, f"{module.target} does not have it")
        try:
            rows.append(translator.encode(instruction, translation(translator, instruction)))
        except MlagenError:
            raise
        except OperandError as error:
            raise not_modelled(instruction, str(error)) from None
        except _MISREAD as error:
            raise UnsupportedError(
                f"line {instruction.line}: not understood: {instruction.text[:100]}"
            ) from error
    rows.append([y.X_EXIT, 0, y.NO_GUARD] + [0] * (y.P_SIZE - 3))  # past the last instruction
    loads = mark_loads(rows, translator.lists)
    return Program(
        entry,
        np.array(rows, np.int64),
        np.array(translator.lists or [0], np.int64),
        translator.constants(),
        translator.bytes,
        tuple(translator.specials.values()),
        symbols,
        parameters,
        parameter_bytes,
        variables.dynamic,
        variables.local,
        variables.const,
        variables.globals,
        any(i.name == "tcgen05" for i in entry.instructions),
        loads,
        any(i.name == "tensormap" for i in entry.instructions),
    )

"""How the engine is compiled: one LLVM module of all its functions, optimised once.

numba compiles a function that compiled code calls like one that Python calls, with everything below
it, anew in each of its callers. The engine is some 200 functions below one entry. So its functions
are lowered here (see `lowering`), and only the entry is numba's: a plain `njit` function, which
takes the module in, is optimised as a whole, made machine code, and kept in numba's cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary
from numba.extending import intrinsic

from mlagen.emulator.gfx950.lowering import Part, Program

OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True}


class _Library(JITCodeLibrary):
    """LLVM code for another library to take in."""

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


def compiled(function: Any) -> Part:
    """Decorator of an inner function of the engine."""
    return Part(function, spliced=False)


def spliced(function: Any) -> Part:
    """The same for a function that LLVM has to inline."""
    return Part(function, spliced=True)


def entry(part: Part, lowered: Callable[[int], None] | None = None) -> Any:
    """What a function of numba's calls to run a part of two integers with an integer result.

    `lowered` is told how many functions the part came to.
    """

    def typing(context: Any, first: Any, second: Any) -> Any:
        return types.int64(types.int64, types.int64), lambda *given: _call(context, part, *given)

    return intrinsic(typing)


def _call(typing: Any, part: Part, target: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Lower a part and all below it into a library of its own, and call it."""
    library = _Library(target.codegen(), "mlagen.engine")
    program = Program(library.create_ir_module("mlagen.engine"), target, typing)
    with target.push_code_library(library):
        code = program.lower(part, signature.args).code
    code.linkage = ""
    library.add_ir_module(program.module)
    library.finalize()
    target.active_code_library.add_linking_library(library)
    return builder.call(
        cgutils.get_or_insert_function(builder.module, code.function_type, code.name), args
    )

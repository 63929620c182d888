"""How the engine is compiled: every function once, the whole of it optimised once.

numba compiles a function that compiled code calls like one that Python calls: with wrappers for
Python and for C, optimised together with everything below it, down to machine code that nobody
runs - then all of that again in each of its callers, and anew for every combination of constant
arguments. The engine is some 200 functions below one entry, so that was most of the time. Here an
inner function stops at LLVM code, which the libraries of its callers take in. Only the entry, a
plain `njit` function, is optimised as a whole and made machine code.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import LoweringPass, PassManager, register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import (
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.untyped_passes import FixupArgs, IRProcessing, ReconstructSSA, TranslateByteCode

OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True}


class _Part(JITCodeLibrary):
    """LLVM code of a function and of all that it calls, for other libraries to take in."""

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


@register_pass(mutates_CFG=False, analysis_only=False)
class _OpenPart(LoweringPass):
    """Lower into a part instead of a library of machine code."""

    _name = "mlagen_open_part"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _ClosePart(LoweringPass):
    """Let compiled code find the part by its description; there is no function to call."""

    _name = "mlagen_close_part"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        described = state.cr.fndesc
        state.targetctx.insert_user_function(described, described, [state.library])
        state.cr = state.cr._replace(cfunc=described)
        return True


class _PartCompiler(CompilerBase):
    """numba's passes, without those for closures, generators, arrays and other absent guests."""

    def define_pipelines(self) -> list[Any]:
        manager = PassManager("mlagen part")
        for step in (
            TranslateByteCode,
            FixupArgs,
            IRProcessing,
            ReconstructSSA,
            NopythonTypeInference,
            PreLowerStripPhis,
            IRLegalization,
            _OpenPart,
            NativeLowering,
            _ClosePart,
            NoPythonBackend,
        ):
            manager.add_pass(step, step._name)
        manager.finalize()
        return [manager]


class _Inner(CPUDispatcher):
    """A function that only compiled code calls."""

    def compile(self, sig: Any) -> Any:
        """Constant arguments are arguments like any other."""
        if isinstance(sig, tuple):
            sig = tuple(types.unliteral(kind) for kind in sig)
        return super().compile(sig)

    def add_overload(self, cres: Any) -> None:
        self.overloads[tuple(cres.signature.args)] = cres

    def _compile_for_args(self, *args: Any, **kws: Any) -> None:
        """A call from Python."""
        raise TypeError(f"only the engine's compiled code can call {self.py_func.__name__}")


def _inner(function: Any, **more: Any) -> Any:
    options = {"nopython": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return _Inner(
        py_func=function, targetoptions=options | OPTIONS | more, pipeline_class=_PartCompiler
    )


def compiled(function: Any) -> Any:
    """Decorator of an inner function of the engine."""
    return _inner(function)


def spliced(function: Any) -> Any:
    """The same for a function that LLVM has to inline.

    A call costs more here than elsewhere: its caller clears room for the result and for an
    exception on entry, whether it comes to the call or not.
    """
    return _inner(function, forceinline=True)

"""How the engine is compiled: one LLVM module of all its functions, optimised once.

numba compiles a function that compiled code calls like one that Python calls, with everything below
it, anew in each of its callers. The engine is some 200 functions below one entry. So its functions
are lowered here (see `lowering`) into the module of the entry, which is the only one that numba
knows: it makes machine code of the module, calls it, and keeps it in its cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import binding as llvm  # type: ignore[import-untyped]
from numba import njit, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.typed_passes import NativeLowering
from numba.extending import intrinsic

from mlagen.emulator.native.lowering import EngineFunction, LoweredModule

OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True}
# LLVM's own threshold of level 2 is 225: functions that are called once or never in a run then fill
# the one that all instructions go through, and compilation takes half as long again. Kernels run no
# faster for it.
INLINING = 100


class _Engine(JITCodeLibrary):
    """Optimised by one pipeline: numba runs a second one for reference counts, which none has."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = True
        options.slp_vectorization = False
        options.inlining_threshold = INLINING
        builder = llvm.create_pass_builder(self._codegen._tm, options)
        builder.getModulePassManager().run(self._final_module, builder)


@register_pass(mutates_CFG=False, analysis_only=False)
class _OpenEngine(LoweringPass):
    """Lower into an `_Engine` instead of numba's own library."""

    _name = "mlagen_open_engine"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        state.library = _Engine(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return True


class _EntryCompiler(CompilerBase):
    """numba's passes, and an `_Engine` to lower into."""

    def define_pipelines(self) -> list[Any]:
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes = [step for step, _ in manager.passes]
        before = passes[passes.index(NativeLowering) - 1]
        manager.add_pass_after(_OpenEngine, before)
        manager.finalize()
        return [manager]


def compiled(function: Any) -> EngineFunction:
    """Decorator of an inner function of the engine."""
    return EngineFunction(function, spliced=False)


def spliced(function: Any) -> EngineFunction:
    """The same for a function that LLVM has to inline."""
    return EngineFunction(function, spliced=True)


def entry(part: EngineFunction, begins: Callable[[], None] | None = None) -> Any:
    """What compiled code of numba's calls to run a part: two integers in, an integer out.

    `begins` is called when the part and all below it are about to be lowered: compilation begins.
    """

    def typing(context: Any, first: Any, second: Any) -> Any:
        def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
            if begins is not None:
                begins()
            lowered = LoweredModule(builder.module, target, context).lower(part, signature.args)
            return builder.call(lowered.code, args)

        return types.int64(types.int64, types.int64), generate

    return intrinsic(typing)


def callable_from_python(function: Any, *, kept: bool) -> Any:
    """numba's dispatcher of a function that calls an `entry`; `kept`: in numba's cache."""
    return njit(function, cache=kept, pipeline_class=_EntryCompiler, **OPTIONS)

"""A case → what Triton or Gluon takes for its kernel. Nothing here is mlagen's."""

from __future__ import annotations

from typing import Any

import numpy as np
from compiler_case import TRITON_TYPES, Arrays, Case, Tiles
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource

WHOLE = (int, np.integer)


def source_of(case: Case) -> tuple[Any, dict[str, str], Arrays]:
    """What the compiler takes, each parameter's type, and the buffers before the launch."""
    buffers = case.buffers()
    signature: dict[str, str] = {}
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    for index, name in enumerate(case.kernel.arg_names):
        if name in case.constants:
            signature[name] = "constexpr"
            continue
        argument = case.arguments[name]
        signature[name] = _type(argument, buffers)
        if isinstance(argument, str) or (isinstance(argument, WHOLE) and argument % 16 == 0):
            attributes[(index,)] = [["tt.divisibility", 16]]
    source = (GluonASTSource if case.gluon else ASTSource)(
        case.kernel, signature, dict(case.constants), attributes
    )
    return source, signature, buffers


def _type(argument: Any, buffers: Arrays) -> str:
    if isinstance(argument, str):
        return "*" + TRITON_TYPES[buffers[argument].dtype]
    if isinstance(argument, Tiles):
        element = TRITON_TYPES[buffers[argument.buffer].dtype]
        layout = f",{argument.layout!r}" if argument.layout is not None else ""
        return f"tensordesc<{element}[{','.join(map(str, argument.block))}]{layout}>"
    if isinstance(argument, np.int64):
        return "i64"
    return "fp32" if isinstance(argument, float) else "i32"

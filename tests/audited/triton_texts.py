"""A jitted function of a file → what Triton or Gluon compiles of it, without GPU and torch.

Of the file only imports of the compiler, functions, classes and constants of the language are
executed: a tutorial's tests, benchmarks and launches are not.
"""

from __future__ import annotations

import ast
import json
import math
import re
import sys
import types
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction

TARGETS = {
    "sm_90a": (GPUTarget("cuda", 90, 32), "ptx"),
    "sm_100a": (GPUTarget("cuda", 100, 32), "ptx"),
    "gfx950": (GPUTarget("hip", "gfx950", 64), "hsaco"),
}
# The version of PTX that ptxas 13.0 reads: the one that mlagen's extra `nvidia` brings.
PTX_VERSION = 90
_MODULES = {"triton", "functools", "typing", "dataclasses", "math", "itertools"}
# Decorators of the languages; all others (autotuning, tests, reports) launch or need a GPU.
_DECORATORS = {"jit", "aggregate", "constexpr_function", "dataclass"}


def compiled(source: Any, options: dict[str, Any], target: str) -> tuple[bytes, list[str]]:
    """The PTX or the code object, and what `mlagen audit` can be told of the launch: bytes of
    shared memory and, of each tensor map, the bytes of a box.

    Errors are the compiler's own.
    """
    machine, kind = TARGETS[target]
    if target.startswith("sm_"):
        options = {**options, "ptx_version": PTX_VERSION}
    made = triton.compile(source, target=machine, options=options)
    text = made.asm[kind]
    shared = str(made.metadata.shared)
    if kind == "hsaco":
        return text, ["--lds", shared]
    boxes = _boxes(source.signature, made.metadata.tensordesc_meta or ())
    return text.encode(), ["--smem", shared, *boxes]


def _boxes(signature: dict[str, str], maps: Any) -> list[str]:
    """A descriptor is several parameters: the map, its shape and its strides."""
    found, index, left = [], 0, iter(maps)
    for kind in signature.values():
        if kind == "constexpr":
            continue
        if not kind.startswith("tensordesc"):
            index += 1
            continue
        told = next(left)
        size = told["elem_size"] * math.prod(told["block_size"])
        found += ["--box", f"param_{index}={size}"]
        index += 1 + 2 * len(told["block_size"])
    return found


def function_source(file: Path, function: str, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What the compiler takes for a function, and its options.

    `given["arguments"]`: types in order of the parameters that are no constants: Triton's own
    (`*fp16`, `i32`, `fp32`), and `tile fp16[64,64]` for a tensor descriptor. Pointers and integers
    are multiples of 16, as those of contiguous tensors are. `given["constants"]`: values by name; a
    text that begins with `=` is an expression in the file's names. `given["options"]`: the
    compiler's. ValueError for types that no parameter has.
    """
    names = namespace(file)
    kernel = names[function]
    gluon = isinstance(kernel, GluonJITFunction)
    constants = {
        name: eval(value[1:], names) if isinstance(value, str) and value[:1] == "=" else value
        for name, value in given.get("constants", {}).items()
    }
    kinds = iter(given["arguments"])
    signature, attributes = {}, {}
    for index, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
            continue
        kind = next(kinds)
        signature[name] = _descriptor(kind, gluon, names) if kind[:5] == "tile " else kind
        if kind[0] == "*" or kind == "i32":
            attributes[(index,)] = [["tt.divisibility", 16]]
    if left := list(kinds):
        raise ValueError(f"{file.name}: {function} has no parameters for {', '.join(left)}")
    source = (GluonASTSource if gluon else ASTSource)(kernel, signature, constants, attributes)
    return source, dict(given.get("options", {}))


def case_source(name: str, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The same for a case of tests/compilers; `given["options"]` go before the case's own."""
    from compiler_source import source_of
    from corpus import CASES

    case = next(case for case in CASES if case.name == name)
    source, _, _ = source_of(case)
    return source, {**case.options, **given.get("options", {})}


def _descriptor(kind: str, gluon: bool, names: dict[str, Any]) -> str:
    """`tile fp16[64,64]`, in Gluon with the layout that `TensorDescriptor` has by default."""
    found = re.fullmatch(r"tile (\w+)\[([\d,]+)\](?: (.*))?", kind)
    if not found:
        raise ValueError(f"{kind!r} is no tile; tile fp16[64,64] is one")
    element, shape, layout = found[1], [int(size) for size in found[2].split(",")], found[3]
    if not gluon:
        return f"tensordesc<{element}{shape}>"
    given = eval(layout, names) if layout else {}
    elements = {
        "fp16": gl.float16,
        "bf16": gl.bfloat16,
        "fp32": gl.float32,
        "fp8e4nv": gl.float8e4nv,
    }
    chosen = gl.NVMMASharedLayout.get_default_for(shape, elements[element], **given)
    return f"tensordesc<{element}{shape},{chosen!r}>"


def namespace(file: Path) -> dict[str, Any]:
    """The names that a file's imports of the compiler, functions and classes give."""
    tree = ast.parse(file.read_text(), str(file))
    siblings = _siblings(tree)
    kept = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            _without_tools(node)
            if isinstance(node, ast.FunctionDef) or node.decorator_list:
                kept.append(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            first = node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name
            if first.partition(".")[0] in _MODULES and "profiler" not in first:
                kept.append(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and (
            "constexpr" in ast.unparse(node) or _root(node.value) in siblings
        ):
            kept.append(node)
    # The languages look a class's names up in its module.
    module = types.ModuleType(file.stem)
    module.__file__ = str(file)
    sys.modules[file.stem] = module
    names = vars(module)
    for name, other in siblings.items():
        namespace(file.parent / f"{other}.py")
        names[name] = sys.modules[other]
    tree.body = kept
    exec(compile(tree, str(file), "exec"), names)
    return names


def _without_tools(node: ast.FunctionDef | ast.ClassDef) -> None:
    """Takes away decorators that are not of the languages; defaults go with those of host code."""
    node.decorator_list = [
        found for found in node.decorator_list if _last_name(found) in _DECORATORS
    ]
    if not node.decorator_list and isinstance(node, ast.FunctionDef):
        node.args.defaults, node.args.kw_defaults = [], [None] * len(node.args.kwonlyargs)
        node.returns = None
        for argument in node.args.args:
            argument.annotation = None


def _last_name(node: ast.expr) -> str:
    """`triton.jit(…)` → jit."""
    found = node.func if isinstance(node, ast.Call) else node
    return found.attr if isinstance(found, ast.Attribute) else getattr(found, "id", "")


def _root(node: ast.expr | None) -> str:
    """`t8.Counter` → t8: the module of a class; of other names, nothing."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id if node.attr[0].isupper() else ""
    return ""


def _siblings(tree: ast.Module) -> dict[str, str]:
    """`t5 = importlib.import_module("05-wgmma")` → t5: 05-wgmma."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and "import_module" in ast.unparse(node.value):
            call = node.value
            assert isinstance(call, ast.Call) and isinstance(call.args[0], ast.Constant)
            assert isinstance(node.targets[0], ast.Name)
            found[node.targets[0].id] = str(call.args[0].value)
    return found


def main() -> None:
    """One kernel, as JSON tells: a `file` with its `function`, or a `case` of tests/compilers."""
    asked = json.loads(sys.argv[1])
    out, given = Path(asked["out"]), asked["compile"]
    if "case" in asked:
        sys.path.insert(0, str(Path(__file__).parents[1] / "compilers"))
        source, options = case_source(asked["case"], given)
    else:
        source, options = function_source(Path(asked["file"]), asked["function"], given)
    text, launch = compiled(source, options, asked["target"])
    out.write_bytes(text)
    out.with_suffix(".json").write_text(json.dumps(launch))


if __name__ == "__main__":
    main()

"""Functions are steps: at most 80 lines, and at most 8 parameters. What is more is a value."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINES, PARAMETERS = 80, 8
# Others' signatures, which a module of another library's names repeats.
FOREIGN = {
    "mlagen/compat/aiter.py: mla_decode_fwd",
    "mlagen/compat/aiter.py: mla_reduce_v1",
    "mlagen/compat/flash_mla.py: flash_mla_with_kvcache",
}
# What users write in a call, or make up inputs by: the interface itself, and written once each.
PUBLIC = {
    "mlagen/attention/prefill/made_up.py: __call__",
    "mlagen/attention/prefill/plan.py: plan_work",
    "mlagen/families/mha_prefill/kernel.py: mha_call",
    "mlagen/families/mla_decode/aiter_call.py: aiter_call",
    "mlagen/families/mla_decode/call.py: decode_call",
    "mlagen/families/mla_decode/plan.py: plan_work",
    "mlagen/ops/torch_decode.py: mla_decode",
    "mlagen/families/mla_prefill/kernel.py: mla_prefill_call",
    "mlagen/families/mla_sparse/call.py: decode_call",
    "mlagen/families/mla_sparse/call.py: prefill_call",
    "mlagen/ops/torch_sparse.py: mla_sparse_decode",
    "mlagen/ops/torch_sparse.py: mla_sparse_prefill",
    # torch reads an operator's arguments off the function.
    "mlagen/ops/torch_decode.py: _decode",
    "mlagen/ops/torch_decode.py: _planned",
    "mlagen/ops/torch_sparse.py: _decode",
    "mlagen/ops/torch_sparse.py: _prefill",
}
# Tables: a schedule, and the instructions of a target. They read in one piece.
TABLES = {
    "mlagen/targets/gfx950/codegen/isa.py: _table",
    "schedules/tables/seesaw.py: seesaw",
    "schedules/tables/streamed_prefill.py: streamed_prefill",
    "schedules/tables/swap_ab_k_in_registers.py: swap_ab_k_in_registers",
    "schedules/tables/tensor_memory.py: tensor_memory",
}


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    return (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef))


def parameters(function: ast.FunctionDef) -> int:
    """Without self and cls; none for a command, whose parameters are the command line's options."""
    if any(ast.unparse(d).startswith("click.option(") for d in function.decorator_list):
        return 0
    given = [*function.args.posonlyargs, *function.args.args]
    own = bool(given) and given[0].arg in ("self", "cls")
    return len(given) - own + len(function.args.kwonlyargs)


def lines(function: ast.FunctionDef) -> int:
    return (function.end_lineno or 0) - function.lineno + 1


def too_large(path: Path) -> list[str]:
    return [
        function.name
        for function in functions(path)
        if lines(function) > LINES or parameters(function) > PARAMETERS
    ]


def test_functions_are_steps_and_arguments_are_values() -> None:
    paths = [p for folder in ("mlagen", "schedules") for p in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 300
    found = {f"{path.relative_to(ROOT)}: {name}" for path in paths for name in too_large(path)}
    assert found == TABLES | PUBLIC | FOREIGN


def test_the_rule_sees_what_is_too_large(tmp_path: Path) -> None:
    names = ", ".join("abcdefgh")
    texts = {
        f"class C:\n    def f(self, {names}): ...": [],
        f"def f({names}, *, i): ...": ["f"],
        f'@click.command("x")\n@click.option("--i")\ndef f({names}, i): ...': [],
        "def f():\n" + "    x = 1\n" * 79: [],
        "def f():\n" + "    x = 1\n" * 80: ["f"],
    }
    for text, found in texts.items():
        path = tmp_path / "one.py"
        path.write_text(text)
        assert too_large(path) == found, text

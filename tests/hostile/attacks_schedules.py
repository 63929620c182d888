"""Attacks 65 to 96: schedule files and templates. They are code; what they do wrong is an error of
one line that names the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attack import OK, REFUSED, Attack, holding, link, pipe

BUILD = ("build", "column_sums.py", "-o", "out")


def replaced(old: str, new: str, name: str = "column_sums.py") -> Callable[[Path], object]:
    def prepare(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text, old
        (folder / name).write_text(text.replace(old, new, 1))

    return prepare


def first(code: str) -> Callable[[Path], object]:
    return replaced("from dataclasses", f"{code}\nfrom dataclasses")


def in_schedule(code: str) -> Callable[[Path], object]:
    return replaced("    ahead = s.choice", f"    {code}\n    ahead = s.choice")


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "sys.exit(0)": (first("import sys; sys.exit(0)"), "SystemExit"),
    "input()": (first("input()"), "EOFError"),
    "recursion": (first("def f(): f()\nf()"), "RecursionError"),
    "no schedule": (holding("column_sums.py", "x = 1\n"), "holds no @schedule"),
    "latin-1": (holding("column_sums.py", "# \xe9\n".encode("latin-1")), "column_sums.py"),
    "NUL": (holding("column_sums.py", b"x = 1\0\n"), "column_sums.py"),
    "a syntax error": (first("def ("), "SyntaxError"),
    "KeyboardInterrupt in a name": (first("raise type('KeyboardInterrupt', (Exception,), {})"),
                                    "KeyboardInterrupt"),
    "MemoryError": (first("raise MemoryError"), "MemoryError"),
    "ImportError": (first("import no_such_module_at_all"), "ModuleNotFoundError"),
    "empty": (holding("column_sums.py", ""), "holds no @schedule"),
    "division by zero in operands": (
        replaced("return {**names", "1 / 0\n        return {**names"), "ZeroDivisionError"),
    "1e9 slots": (replaced("slots=ahead + 1", "slots=10**9"), "column_sums.py"),
    "1e6 registers": (replaced('"X", 4,', '"X", 10**6,'), "ran out"),
    "a template of ../../etc": (replaced('f"columns/{name}.s.j2"', '"../../etc/passwd"'), ""),
    "a knob of 100000": (replaced('"ahead", 2, 1, 3', '"ahead", 100000'), ""),
    "a name with blanks and umlauts": (in_schedule('s.registers.tile("ä b", 1, "x")'), "no name"),
    "/dev/zero": (link("/dev/zero", "column_sums.py"), "a device or a pipe"),
    "a pipe": (pipe("column_sums.py"), "a device or a pipe"),
}  # fmt: skip
ATTACKS = [
    Attack(f"65 schedule {name}", BUILD, prepare, said=said)
    for name, (prepare, said) in FILES.items()
]
ADD = "templates/gfx950/columns/add.s.j2"


def add(text: str) -> Callable[[Path], object]:
    """Lines after those of the shipped template."""

    def prepare(folder: Path) -> None:
        (folder / ADD).write_text((folder / ADD).read_text() + text + "\n")

    return prepare


TEMPLATES: dict[str, tuple[Callable[[Path], object], tuple[int, ...], str]] = {
    "one that includes itself": (add("{% include 'columns/add.s.j2' %}"), (REFUSED,),
                                 "include or import itself"),
    "range(1e9)": (add("{% for i in range(10**9) %}\ns_nop 0\n{% endfor %}"), (REFUSED,),
                   "more than 1000000"),
    "loops of 1e10": (
        add("{% for i in range(10**5) %}{% for j in range(10**5) %}{% endfor %}{% endfor %}"),
        (REFUSED,), "goes on after"),
    "a barrier": (add("s_barrier"), (OK, 2), ""),
    "s_endpgm": (add("s_endpgm"), (REFUSED,), "branches"),
    "a branch": (add("s_branch 0"), (REFUSED,), "branches"),
    "exec = 0": (add("s_mov_b64 exec, 0"), (OK, REFUSED), ""),
    "an escape from the sandbox": (add("{{ ''.__class__.__mro__[1].__subclasses__() }}"),
                                   (2, 5), ""),
    "a directive": (add('.incbin "/etc/passwd"'), (REFUSED,), "incbin"),
    "a trailing comma": (add("v_add_f32 v1, v2, v3,"), (REFUSED,), ""),
    "v[4:]": (add("v_mov_b32 v[4:], 0"), (REFUSED,), ""),
    "v[7:4]": (add("global_load_dwordx4 v[7:4], v[0:1], off"), (REFUSED,), ""),
    "offset:": (add("ds_read_b32 v1, v2 offset:"), (REFUSED,), ""),
    "offset:abc": (add("ds_read_b32 v1, v2 offset:abc"), (REFUSED,), ""),
    "an unknown instruction": (add("v_nothing v1, v2"), (REFUSED,), "v_nothing"),
    "an undefined name": (add("{{ nothing_at_all }}"), (REFUSED,), "nothing_at_all"),
    "a template that is a pipe": (pipe(ADD), (2, 5), ""),
    "a template without an end": (link("/dev/zero", ADD), (2, 5), ""),
}  # fmt: skip
ATTACKS += [
    Attack(f"83 template {name}", BUILD, prepare, codes, said)
    for name, (prepare, codes, said) in TEMPLATES.items()
]

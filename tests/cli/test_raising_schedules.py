"""A schedule file may raise anything, and exit: one line names the file and the line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mlagen.cli.main import run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FIRST = "    slots = s.choice("  # the first line of the gfx950 schedule

RAISED = {
    "import sys; sys.exit(0)": "SystemExit: 0",
    "raise SystemExit": "SystemExit",
    "raise MemoryError": "MemoryError",
    "open('/no/such')": "FileNotFoundError: [Errno 2] No such file or directory: '/no/such'",
    "raise type('Mine', (Exception,), {})('x')": "Mine: x",
    "raise type('Mine', (BaseException,), {})('x')": "Mine: x",
    "raise type('Mine', (Exception,), {'__str__': lambda self: 1 / 0})": "Mine",
    "raise BrokenPipeError": "BrokenPipeError",
    "raise GeneratorExit": "GeneratorExit",
    "import click; raise click.Abort": "Abort",
    "1 / 0": "ZeroDivisionError: division by zero",
    "def f(): f()\nf()": "RecursionError: maximum recursion depth exceeded",
    "import no_such_module": "ModuleNotFoundError: No module named 'no_such_module'",
}
DECLARED = {
    's.registers.tile("exec", 4, "x")': "'exec' is the machine's own",
    's.registers.tile("v0", 4, "x")': "'v0' is the machine's own",
    's.registers.scalar("m0", 1, "x")': "'m0' is the machine's own",
    's.registers.tile("S 0", 4, "x")': "'S 0' is no name",
    's.registers.tile("", 4, "x")': "'' is no name",
    's.registers.tile("X", 4, "x"); s.registers.scalar("X", 1, "x")': "'X' is declared twice",
    's.registers.tile("X", 4096, "x")': "vector registers ran out",
    "s.entry('a'); s.entry('a')": "entry() comes before all other registers",
    "s.choice('slots')": "IndexError",
}


def written(folder: Path, text: str) -> Path:
    (folder / "mine.py").write_text(text)
    return folder / "mine.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLES / "gemm", tmp_path / "gemm")
    shutil.copytree(EXAMPLES / "templates", tmp_path / "templates")
    return tmp_path


@pytest.mark.parametrize("verb", ["list", "build", "verify", "inspect", "simulate", "bench"])
def test_what_a_file_raises_when_it_is_read(mlagen, tmp_path: Path, verb: str) -> None:
    for number, (code, said) in enumerate(RAISED.items()):
        path = tmp_path / f"{number}.py"
        path.write_text(code)
        done = mlagen(verb, path)
        line = code.count("\n") if "def f" in code else 1
        assert done.code == 2, code
        assert done.err.startswith(f"error: {path}:{line}: {said}"), (code, done.err)
        assert done.err.count("\n") == 1


def test_what_a_schedule_raises(mlagen, folder: Path) -> None:
    text = (EXAMPLES / "gemm_bf16.py").read_text()
    at = text[: text.index(FIRST)].count("\n") + 1
    for code, said in RAISED.items():
        lines = "".join(f"    {line}\n" for line in code.split("\n"))
        path = written(folder, text.replace(FIRST, lines + FIRST, 1))
        done = mlagen("build", path, "-o", folder / "out")
        assert done.code == 2, (code, done.err)
        assert done.err.startswith(f"error: {path}:{at}: {said}") or "def f" in code, done.err
        assert done.err.count("\n") == 1 and not (folder / "out").exists()


def test_what_a_schedule_may_not_declare_is_named_with_its_line(mlagen, folder: Path) -> None:
    text = (EXAMPLES / "gemm_bf16.py").read_text()
    at = text[: text.index(FIRST)].count("\n") + 1
    for code, said in DECLARED.items():
        path = written(folder, text.replace(FIRST, f"    {code}\n{FIRST}", 1))
        done = mlagen("build", path, "-o", folder / "out")
        assert done.code == 2, (code, done.err)
        assert done.err.startswith(f"error: {path}:{at}: ") and said in done.err, done.err


def test_a_missing_part_is_named_with_the_schedules_line(mlagen, folder: Path) -> None:
    text = (EXAMPLES / "gemm_bf16.py").read_text()
    begin = text.index("    for i in tiles(waves):")
    end = text.index("    with epilogue():", begin)
    at = text[: text.index("@schedule")].count("\n") + 1
    path = written(folder, text[:begin] + text[end:])
    done = mlagen("build", path)
    assert done.code == 2
    assert done.err.startswith(f"error: {path}:{at}: gemm_bf16 has no tile loop"), done.err
    words = "from mlagen.dsl import schedule\nfrom gemm.problem import GemmConfig\n"
    path = written(
        folder,
        f'{words}@schedule(problem=GemmConfig, target="gfx950")\ndef mine(k, s):\n    pass\n',
    )
    done = mlagen("build", path)
    assert done.code == 2 and f"{path}:3: mine has no roles()" in done.err, done.err


def test_an_interrupt_of_a_file_is_one(tmp_path: Path, capsys) -> None:
    path = written(tmp_path, "raise KeyboardInterrupt")
    assert run(["list", str(path)]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"

"""Files of strangers: an answer or a deliberate error, in 20 s of processor time and 2 GB.

`MLAGEN_ACCEPTANCE=1` runs every command on every file, and code of a whole megabyte.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from elf_files import argument, code_object, kernel_info, note
from hostile_objects import CODE, MEGABYTE, SMALL
from sandbox import Ran, Sandbox

LAUNCH = "grid = [1, 1, 1]\nblock = [64, 1, 1]\n"
EMULATE = ("--launch", "launch.toml", "--threads", "1")
COMMANDS = {
    "inspect": ("inspect", "k.co"),
    "audit": ("audit", "k.co"),
    "emulate": ("emulate", "k.co", *EMULATE, "--max-instructions", "100000"),
    "template": ("emulate", "k.co", "--template"),
    "simulate": ("simulate", "k.co", "--launch", "launch.toml"),
    "diff": ("diff", "plain.co", "k.co"),
}
ALL = "MLAGEN_ACCEPTANCE" in os.environ


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "launch.toml").write_text(LAUNCH)
    (tmp_path / "plain.co").write_bytes(code_object())
    return tmp_path


def check(ran: Ran, said: str) -> None:
    ran.check()
    if said:
        assert ran.code in (2, 5) and re.search(said, ran.err), ran.err
    else:
        assert ran.code in (0, 4), ran.err


@pytest.mark.parametrize("name", SMALL)
def test_objects(sandbox: Sandbox, folder: Path, name: str) -> None:
    make, said = SMALL[name]
    data = make()
    assert len(data) <= 1.1 * MEGABYTE
    (folder / "k.co").write_bytes(data)
    for verb in COMMANDS if ALL else ("inspect", "audit", "template"):
        ran = sandbox.run(*COMMANDS[verb], cwd=folder)
        # A small kernel has no loop, whose tiles simulate would count.
        refused = "no loop of" if verb == "simulate" and ran.code == 5 else ""
        check(ran, said or refused)


@pytest.mark.parametrize("name", CODE)
@pytest.mark.parametrize("verb", ["inspect", "audit", "emulate", "simulate", "diff"])
def test_code(sandbox: Sandbox, folder: Path, name: str, verb: str) -> None:
    """Whatever the code does, there is an answer. What it is may be that the code is too much: the
    hardest has as many instructions as are just taken."""
    for size in (260_000, MEGABYTE) if ALL else (8_000,):
        (folder / "k.co").write_bytes(CODE[name](size))
        sandbox.run(*COMMANDS[verb], cwd=folder).check()


def test_a_kernel_that_never_ends_is_cut(sandbox: Sandbox, folder: Path) -> None:
    (folder / "k.co").write_bytes(code_object(b"\xff\xff\x82\xbf"))  # s_branch to itself
    for verb in ("emulate", "simulate"):
        check(sandbox.run(*COMMANDS[verb], cwd=folder), "has not ended.*\n.*--max-instructions")


def _buffer(*lines: str) -> str:
    return LAUNCH + "[buffers.x]\naddress = 0x40000000\n" + "\n".join(lines) + "\n"


LAUNCHES = {
    "grid of 2^31": (LAUNCH.replace("grid = [1", "grid = [2147483648"), "137438953472|work-items"),
    "2^31 workgroups": (
        LAUNCH.replace("grid = [1, 1, 1", "grid = [65536, 32768, 1").replace("[64", "[1"),
        "2147483648 workgroups; a run executes at most 1048576\n.*--workgroups",
    ),
    "a negative grid": (LAUNCH.replace("grid = [1", "grid = [-1"), "at least 1"),
    "an absolute input": (_buffer('file = "/etc/passwd.npy"'), "outside of .*\n.*--allow-outside"),
    "an input above": (_buffer('file = "../x.npy"'), "outside of .*\n.*--allow-outside"),
    "an input behind a link": (_buffer('file = "link/x.npy"'), "outside of .*\n.*--allow-outside"),
    "an absolute output": (_buffer("bytes = 4", 'output = "/tmp/x.npy"'), "outside of"),
    "an output above": (_buffer("bytes = 4", 'output = "a/../../x.npy"'), "outside of"),
    "an output behind a link": (_buffer("bytes = 4", 'output = "link/x.npy"'), "outside of"),
    "a path with a zero": (_buffer('file = "a\\u0000.npy"'), "is no path"),
    "a pipe": (_buffer('file = "pipe.npy"'), "no such file"),
    "an array that claims a terabyte": (_buffer('file = "claims.npy"'), "1099511627776 bytes"),
    "a buffer of 100 GB": (_buffer("bytes = 100000000000"), "100000000000 bytes.*\n.*--max-memory"),
    "a guard of 100 GB": (_buffer("bytes = 4", "guard = 100000000000"), "--max-memory"),
    "a shape of 2^64": (
        _buffer('dtype = "f32"', "shape = [4294967296, 4294967296]"),
        "--max-memory",
    ),
    "many buffers": (
        LAUNCH + "".join(f"[buffers.b{i}]\nbytes = 4\n" for i in range(30_000)),
        "30000 buffers; at most 1024",
    ),
    "buffers that sum up": (
        LAUNCH
        + "".join(
            f"[buffers.b{i}]\nbytes = 1000000\naddress = {i << 30}\n" for i in range(1, 1000)
        ),
        "--max-memory",
    ),
    "many arguments": (LAUNCH + "[[arguments]]\n" * 60_000, "60000 arguments; at most 1024"),
    "deep lists": (LAUNCH + "x = " + "[" * 100_000, "nested too deeply|no TOML"),
    "deep tables": (LAUNCH + "x = " + "{a=" * 100_000, "nested too deeply|no TOML"),
    "deep keys": (LAUNCH + "a." * 400_000 + "a = 1", "dots"),
    "deep enough": (LAUNCH + "workgroups = [[[[[[1]]]]]]", "nested over 4 deep"),
    "a long number": (_buffer("bytes = 1" + "0" * 100_000), "no TOML"),
    "a long number in hex": (_buffer("bytes = 0x" + "f" * 100_000), "more than 64 bits"),
    "an infinite grid": (LAUNCH.replace("[1,", "[inf,"), "grid"),
    "an infinite fill": (_buffer("bytes = 4", "fill = inf"), "inf is no u8"),
    "a name with escapes": (
        LAUNCH + '[buffers."\\u001b[2J\\u009b"]\nbytes = 4\n',
        r"buffer \\x1b\[2J\\x9b is passed to no argument",
    ),
    "a kernel's name with escapes": ('kernel = "\\u001b[2J"\n' + LAUNCH, r"no kernel \\x1b\[2J"),
    "a key with escapes": ('"\\u001b[2J" = 1\n' + LAUNCH, "unknown key"),
    "a megabyte of a key": ("x" * MEGABYTE + " = 1\n" + LAUNCH, "unknown key"),
    "no text": ("\x00\x1b[2J", "no TOML"),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_launch_files(sandbox: Sandbox, folder: Path, name: str) -> None:
    text, said = LAUNCHES[name]
    inner = folder / "inner"
    inner.mkdir()
    (inner / "link").symlink_to(folder)
    os.mkfifo(inner / "pipe.npy")
    header = (
        "{'descr': '<f4', 'fortran_order': False, 'shape': (274877906944,), }".ljust(117) + "\n"
    )
    (inner / "claims.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00" + header.encode())
    (inner / "launch.toml").write_text(text)
    before = sorted(folder.rglob("*"))
    (inner / "k.co").write_bytes(code_object())
    for verb in ("emulate", "simulate") if ALL else ("emulate",):
        check(sandbox.run(*COMMANDS[verb], cwd=inner), said)
    assert sorted(folder.rglob("*")) == sorted([*before, inner / "k.co"])


def test_a_launch_file_may_be_let_out(sandbox: Sandbox, folder: Path) -> None:
    (folder / "k.co").write_bytes(code_object())
    inner = folder / "inner"
    inner.mkdir()
    text = _buffer("bytes = 4", 'output = "../x.npy"')
    (inner / "launch.toml").write_text(text)
    command = ("emulate", "k.co", "--launch", "inner/launch.toml", "--threads", "1")
    check(sandbox.run(*command, cwd=folder), "outside of inner")
    check(sandbox.run(*command, "--allow-outside", cwd=folder), "")
    assert (folder / "x.npy").is_file()


def test_names_cannot_add_to_a_template(sandbox: Sandbox, folder: Path) -> None:
    """A name with quotes and a line of TOML stays a name."""
    from mlagen.emulator.launching import parse_launch

    name = 'x"\\\n[buffers.evil]\nfile = "/etc/shadow.npy" # \''
    quoted = name.replace("\n", " ")  # names with line breaks are refused when the object is read
    args = [argument(quoted, "global_buffer"), argument(quoted, offset=8)]
    (folder / "k.co").write_bytes(code_object(metadata=note(kernel_info(args=args))))
    ran = sandbox.run(*COMMANDS["template"], cwd=folder)
    check(ran, "")
    launch = parse_launch(ran.out)
    assert list(launch.buffers) == [quoted] and launch.buffers[quoted].file is None
    assert [a.name for a in launch.arguments] == [quoted, quoted]
    args = [argument(name)]
    (folder / "k.co").write_bytes(code_object(metadata=note(kernel_info(args=args))))
    check(sandbox.run(*COMMANDS["template"], cwd=folder), "cannot be shown")


def test_the_sandbox_sees_what_breaks_the_rule(sandbox: Sandbox, folder: Path) -> None:
    """The rule itself: too much memory, too much time, an escape, an unexpected exit."""
    fine = Ran(0, "text\n", "", 1.0, 10**8)
    fine.check()
    for bad in (
        Ran(0, "", "", 21.0, 10**8),
        Ran(0, "", "", 1.0, 3 * 10**9),
        Ran(0, "\x1b[2J", "", 1.0, 10**8),
        Ran(-9, "", "", 1.0, 10**8),
        Ran(1, "", "Traceback", 1.0, 10**8),
        Ran(5, "", "what", 1.0, 10**8),
    ):
        with pytest.raises(AssertionError):
            bad.check()
    ran = sandbox.run("inspect", "absent.co", cwd=folder)
    assert ran.code == 5 and 0 < ran.seconds < 5 and ran.memory > 10**7

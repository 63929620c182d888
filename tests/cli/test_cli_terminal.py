"""What a terminal of 80 columns shows, what a pipe gets, and `-v` and `-q`."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlagen import env
from mlagen.app import catalogue
from mlagen.cli import printing, terminal
from mlagen.cli.main import run
from mlagen.cli.verbs import VERBS, cli

COLUMNS = 80
REDUCE = ("build", "mla_prefill_reduce", "--set", "num_heads=8")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Seen:
    """What came to a terminal, or through a pipe, in its order."""

    code: int
    text: str

    @property
    def lines(self) -> list[str]:
        """Lines without styles."""
        return _STYLE.sub("", self.text).splitlines()


def in_terminal(
    tmp_path: Path, *arguments: str, env_: dict[str, str] | None = None, out: bool = True
) -> Seen:
    """`python ARGUMENTS` with stdout (but for `out=False`) and stderr in one terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    given_ = {n: v for n, v in os.environ.items() if n not in ("COLUMNS", "NO_COLOR", "TERM")}
    given_ |= {env.CACHE_DIR: str(tmp_path / "cache"), "TERM": "xterm", **(env_ or {})}
    process = subprocess.Popen(
        [sys.executable, *arguments], stdin=slave, stdout=slave if out else subprocess.DEVNULL,
        stderr=slave, env=given_,
    )  # fmt: skip
    os.close(slave)
    seen = b""
    while True:
        try:
            piece = os.read(master, 1 << 16)
        except OSError:  # Linux: nobody holds the other end any more
            break
        if not piece:
            break
        seen += piece
    os.close(master)
    return Seen(process.wait(), seen.decode().replace("\r\n", "\n"))


def mlagen_in_terminal(tmp_path: Path, *arguments: str, **env_: str) -> Seen:
    return in_terminal(tmp_path, "-m", "mlagen", *arguments, env_=env_)


def shown(text: str) -> str:
    """What is left on the screen of `text` when rich's bar has been erased."""
    return text.rpartition("\x1b[?25h")[2]


# ---- width ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [("list",), ("list", "mha_prefill_v2"), ("cache",), ("simulate", "--constants")]
)
def test_tables_fit_the_terminal(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    seen = mlagen_in_terminal(tmp_path, *arguments)
    assert seen.code == 0
    # A word that is longer than the terminal (a path) stays whole, alone in its line.
    wide = [line for line in seen.lines if len(line) > COLUMNS and len(line.split()) > 2]
    assert not [line for line in wide if not line.startswith("|")]  # tables of a docstring


def test_long_facts_go_on_below_their_beginning(tmp_path: Path, mlagen) -> None:
    build = ("build", "mha_prefill_v2", "--set", "num_heads=8", "--set", "num_kv_heads=2")
    piped = mlagen(*build, "-o", tmp_path / "out").out.splitlines()
    seen = mlagen_in_terminal(tmp_path, *build, "-o", str(tmp_path / "out"))
    assert seen.code == 0
    lines = _STYLE.sub("", shown(seen.text)).splitlines()
    for name in ("problem", "knobs"):
        (whole,) = [line for line in piped if line.startswith(f"{name} ")]
        assert len(whole) > COLUMNS  # a line stays a line where there is no terminal
        at = next(n for n, line in enumerate(lines) if line.startswith(f"{name} "))
        end = next(n for n in range(at + 1, len(lines)) if lines[n][0] != " ")
        assert end > at + 1
        assert all(len(line) <= COLUMNS for line in lines[at:end])
        assert all(re.match(r" {11}\S", line) for line in lines[at + 1 : end])
        assert " ".join(lines[at:end]).split() == whole.split()


CELLS = st.lists(st.text("ab ", max_size=40), min_size=1, max_size=4)


@given(st.lists(st.tuples(CELLS), min_size=1, max_size=6), st.integers(20, 100))
def test_columns_have_the_room_or_are_given_up(columns: list[tuple[list[str]]], room: int) -> None:
    cells = [each[0] for each in columns]
    widths = printing._fitting(cells, room)
    if widths is None:
        return
    assert sum(widths) <= room
    for column, width in zip(cells, widths, strict=True):
        assert width >= max(len(word) for cell in column for word in [*cell.split(), ""])
        assert width == max(map(len, column)) or width >= printing._NARROWEST


def test_a_folded_table_keeps_every_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "width", lambda: 40)
    words = [f"word{n}" for n in range(20)]
    printing.print_table("t", ("a", "b"), [("key", " ".join(words))])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 40
    assert [word for word in out.split() if word.startswith("word")] == words
    path = "/" + "x" * 60
    printing.print_table("t", ("a", "b"), [("key", path)])
    assert path in capsys.readouterr().out  # whole, for whoever copies it


# ---- colours --------------------------------------------------------------------------------


def test_verdicts_are_coloured_unless_no_color_says_no(tmp_path: Path) -> None:
    build = (*REDUCE, "-o", str(tmp_path / "out"))
    assert "\x1b[32m\x1b[1mproved\x1b[0m" in mlagen_in_terminal(tmp_path, *build).text
    assert "\x1b[32m" in shown(mlagen_in_terminal(tmp_path, *build, NO_COLOR="").text)
    for without in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert not _STYLE.search(shown(mlagen_in_terminal(tmp_path, *build, **without).text))


def test_errors_are_red(tmp_path: Path) -> None:
    seen = mlagen_in_terminal(tmp_path, "list", "nowhere")
    assert seen.code == 2
    assert seen.text.startswith("\x1b[31m\x1b[1merror\x1b[0m: ")
    assert mlagen_in_terminal(tmp_path, "list", "nowhere", NO_COLOR="1").text.startswith("error: ")


def test_a_pipe_gets_no_escapes(mlagen) -> None:
    done = mlagen(*REDUCE)
    assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize(
    ("name", "value", "part", "colour"),
    [
        ("verdict", "passed; reached 3 of 3 instructions", "passed", "green"),
        ("verdict", "FAILED; reached 3 of 3 instructions", "FAILED", "red"),
        ("verdict", "differs", "differs", "red"),
        ("outputs", "WRONG by both oracles", "WRONG", "red"),
        ("outputs", "right by both oracles", "right", "green"),
        ("sanitizer", "2 findings, other bits in mode latest", "2 findings", "red"),
        ("proof", "UNPROVED, never launched", "UNPROVED", "red"),
        ("covered", "not all of it: 2 unchecked", "not all of it", "yellow"),
        ("findings", "0 errors, 3 pieces of advice", "0", "green"),
        ("findings", "10", "10", "red"),
        ("unchecked", "2", "2", "yellow"),
        ("missed", "0", "0", "green"),
    ],
)
def test_a_verdict_has_the_colour_of_what_it_says(
    name: str, value: str, part: str, colour: str
) -> None:
    assert terminal.colour_of_fact(name, value) == (len(part), colour)


@pytest.mark.parametrize(("name", "value"), [("kernel", "passed_on"), ("knobs", "0"), ("code", "")])
def test_other_facts_have_none(name: str, value: str) -> None:
    assert terminal.colour_of_fact(name, value) is None


# ---- progress -------------------------------------------------------------------------------

STEP = textwrap.dedent(
    """
    import sys, time
    from mlagen.cli import terminal
    from mlagen.cli.progress import progress_bar
    terminal._set(terminal.Verbosity(sys.argv[1]))
    with progress_bar("doing a long thing", long=True) as bar:
        for done in range(9):
            time.sleep(0.1)
            if bar:
                bar(done, 9)
    with progress_bar("doing a short thing") as bar:
        pass
    print("the result")
    """
)


def test_a_long_step_is_told_on_a_terminal_and_leaves_nothing(tmp_path: Path) -> None:
    seen = in_terminal(tmp_path, "-c", STEP, "")
    assert "doing a long thing" in seen.text
    assert "doing a short thing" not in seen.text
    assert shown(seen.text).split("\x1b[2K")[-1] == "the result\n"
    only_err = in_terminal(tmp_path, "-c", STEP, "", out=False)
    assert "doing a long thing" in only_err.text  # on stderr


def test_a_terminal_that_cannot_erase_gets_a_line(tmp_path: Path) -> None:
    seen = in_terminal(tmp_path, "-c", STEP, "", env_={"TERM": "dumb"})
    assert seen.text == "doing a long thing …\nthe result\n"


def test_quiet_tells_no_step(tmp_path: Path) -> None:
    assert in_terminal(tmp_path, "-c", STEP, "-q").text == "the result\n"


@pytest.mark.parametrize(
    ("flag", "err"),
    [
        ("", r"doing a long thing …\n"),
        ("-q", ""),
        ("-v", r"doing a long thing …\ndoing a long thing: \d\.\d\d s\n"
               r"doing a short thing: \d\.\d\d s\n"),
    ],
)  # fmt: skip
def test_a_pipe_gets_one_line_of_a_long_step(flag: str, err: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STEP, flag], capture_output=True, text=True, check=True
    )
    assert done.stdout == "the result\n"
    assert re.fullmatch(err, done.stderr)


# ---- -v and -q ------------------------------------------------------------------------------


def _verbs() -> list[list[str]]:
    own = ("run", "show", "export", "import", "plot")
    return [*([verb] for verb in VERBS), *(["tune", each] for each in own)]


@pytest.mark.parametrize("verb", _verbs(), ids=" ".join)
@pytest.mark.parametrize("flag", terminal.FLAGS)
def test_every_verb_takes_them_before_and_after(mlagen, verb: list[str], flag: str) -> None:
    for arguments in ([flag, *verb], [*verb, flag]):
        done = mlagen(*arguments, "--help")
        assert done.code == 0
        assert flag in done.out
        assert f"mlagen {' '.join(verb)} " in done.out


def test_more_tells_steps_and_tools_on_stderr_alone(mlagen, tmp_path: Path) -> None:
    build = [str(word) for word in (*REDUCE, "-o", tmp_path / "out")]
    plain = mlagen(*build)
    assert plain.err == ""
    for arguments in (["-v", *build], [*build, "--verbose"]):
        done = subprocess.run(
            [sys.executable, "-m", "mlagen", *arguments], capture_output=True, text=True, check=True
        )
        assert done.stdout == plain.out
        assert re.search(r"^building mla_prefill_reduce: \d+\.\d\d s$", done.stderr, re.M)
        assert re.search(r"clang .*-mcpu=gfx950 .* kernel.o: \d+\.\d\d s$", done.stderr, re.M)
        assert re.search(r": clang \d+\..*, lld \d+\.", done.stderr)
    assert "building" in mlagen("-v", *build).err
    assert mlagen(*build).err == ""  # nothing of it is left for the next command


@pytest.mark.parametrize(("flag", "told"), [("", ""), ("-v", "clang 1\nx\n"), ("-q", "")])
def test_what_the_emulator_notes_is_told_unless_quiet(
    capsys: pytest.CaptureFixture[str], flag: str, told: str
) -> None:
    terminal._set(terminal.Verbosity(flag))
    logging.getLogger("mlagen.codegen.tools").info("clang %d\nx", 1)
    assert capsys.readouterr().err == told
    logging.getLogger("mlagen.emulator.gfx950.starting").info("compiling")
    assert capsys.readouterr().err == ("" if flag == "-q" else "compiling\n")
    terminal.reset()


def test_less_leaves_the_verdict(mlagen, tmp_path: Path) -> None:
    build = (*REDUCE, "-o", tmp_path / "out")
    for arguments in (("-q", *build), (*build, "--quiet")):
        done = mlagen(*arguments)
        assert (done.code, done.err) == (0, "")
        assert re.fullmatch(r"proof  proved: .*\n", done.out)
    verified = mlagen("verify", "-q", tmp_path / "out")
    assert (verified.code, verified.err) == (0, "")
    assert re.fullmatch(r"verdict  passed; reached .*\n", verified.out)
    audited = mlagen("audit", "-q", tmp_path / "out")
    assert {line.split()[0] for line in audited.out.splitlines()} == {"findings", "covered"}


def test_less_leaves_errors_and_what_a_verb_is_asked_to_show(mlagen, tmp_path: Path) -> None:
    done = mlagen("-q", "list", "nowhere")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert mlagen("-q", "list").out == mlagen("list").out
    assert mlagen("-q", "simulate", "--constants").out == mlagen("simulate", "--constants").out


@pytest.mark.parametrize("flag", ["-v", "-q"])
def test_json_is_the_same(mlagen, tmp_path: Path, flag: str) -> None:
    for verb in (("list",), (*REDUCE, "-o", str(tmp_path / "out")), ("cache",)):
        plain = mlagen(*verb, "--json").out
        assert json.loads(plain)
        assert mlagen(flag, *verb, "--json").out == plain


def test_every_long_step_has_words(mlagen, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert mlagen(*REDUCE, "-o", out).code == 0
    for words, verb in (
        ("emulating", ("verify", out)),
        ("building again, with its proof", ("verify", out, "--prove-again")),
        (f"inspecting {out}", ("inspect", out)),
        ("deriving mla_prefill_reduce", ("inspect", *REDUCE[1:])),
        (f"comparing {out} and {out}", ("diff", out, out)),
        (f"auditing {out}/kernel.co", ("audit", out)),
        ("judging mutants", ("mutate", out, "--sample", "1", "--processes", "1")),
        ("looking for tools", ("doctor",)),
    ):
        done = mlagen("-v", *verb)
        assert done.code in (0, 4)
        assert re.search(rf"^{re.escape(words)}: \d+\.\d\d s$", done.err, re.M), done.err


@pytest.mark.parametrize("arguments", [("-v", "-q", "list"), ("-v", "list", "-q")])
def test_both_are_refused(mlagen, arguments: tuple[str, ...]) -> None:
    done = mlagen(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: -v and -q ask for more and for less")


def test_a_defect_is_one_line_and_with_v_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(catalogue, "summaries", broken)
    assert run(["list"]) == 1
    told = capsys.readouterr().err
    assert told == (
        "error: a defect of mlagen: RuntimeError: no such luck\n"
        "  hint: -v shows where; please report it\n"
    )
    assert run(["list", "-v"]) == 1
    told = capsys.readouterr().err
    assert "Traceback" in told and "in broken" in told
    assert told.endswith("error: a defect of mlagen: RuntimeError: no such luck\n")


def test_options_are_added_once() -> None:
    for _ in range(2):
        terminal.with_flags(cli)
    assert sum("-v" in param.opts for param in cli.params) == 1

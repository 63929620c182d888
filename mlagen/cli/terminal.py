"""What decides how the terminal is talked to: how much is said, in which colours, how wide.

`-v` and `-q` stand before a verb or after it. Neither changes what `--json` prints.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import traceback
from enum import Enum
from typing import Any

import click

from mlagen.untrusted import indented, printable

FLAGS = ("-v", "--verbose", "-q", "--quiet")

# What -q leaves of a verb that judges something: the facts of these names. A verb that only shows
# something is not here: what it shows is what was asked for.
VERDICTS = {
    "build": ("proof",),
    "verify": ("verdict",),
    "audit": ("findings", "covered", "unchecked"),
    "emulate": ("findings",),
    "mutate": ("missed",),
    "simulate": ("time", "gain", "counts"),
    "tune run": ("best", "gain"),
    "doctor": (),
}

_GOOD = re.compile(r"(passed|proved|right|clean|all of it)\b")
_BAD = re.compile(r"(FAILED|WRONG|UNPROVED|differs|missing|\d+ findings?)\b")
_DOUBTFUL = re.compile(r"(not all of it|nothing found, not all covered|ordered)\b")
_JUDGED = frozenset({"proof", "outputs", "sanitizer", "verdict", "covered"})
_COUNTED = {"findings": "red", "missed": "red", "unchecked": "yellow"}  # the colour but for 0
_CELLS = {"passed": "green", "ok": "green", "found": "green", "missing": "red", "wrong": "red"}
_SEVERITY = re.compile(
    r"\n*(error|unproved|letter|advice|warning|unchecked|assumed|not known|not told)"
    r"(\[[^\]]*\])?(?=[: ])"
)


class Verbosity(Enum):
    """How much is said."""

    QUIET = "-q"
    NORMAL = ""
    VERBOSE = "-v"


class _Told:
    """What the command line has said so far."""

    verbosity = Verbosity.NORMAL
    verb = ""


def verbosity() -> Verbosity:
    """How much this command says."""
    return _Told.verbosity


def only_verdicts() -> bool:
    """Whether all but the verdict of this verb is left out."""
    return _Told.verbosity is Verbosity.QUIET and _Told.verb in VERDICTS


def is_verdict(name: str) -> bool:
    """Whether a fact of this name is (a part of) the verb's verdict."""
    return name in VERDICTS[_Told.verb]


def note(text: str) -> None:
    """A line on stderr that only `-v` asks for."""
    logging.getLogger(__name__).info(text)


def defect(error: Exception) -> int:
    """Says that `error` is a defect of mlagen, with -v where it came up. The exit code: 1."""
    if verbosity() is Verbosity.VERBOSE:
        traceback.print_exception(error)
    told = "".join(traceback.format_exception_only(error)).strip()
    click.echo(painted(f"error: a defect of mlagen: {indented(told)}", err=True), err=True)
    if verbosity() is not Verbosity.VERBOSE:
        click.echo("  hint: -v shows where; please report it", err=True)
    return 1


# ---- -v and -q ------------------------------------------------------------------------------

_TOLD_ANYWAY = "mlagen.emulator"  # that it compiles for this machine, once


class _Handler(logging.Handler):
    """Log records as lines on the stderr of the moment, which a progress bar may have replaced."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(styled(printable(record.getMessage()), dim=True, err=True), err=True)


_HANDLER = _Handler(logging.INFO)


def _set(asked: Verbosity) -> None:
    _Told.verbosity = asked
    log = logging.getLogger("mlagen")
    log.addHandler(_HANDLER)  # once, however often
    log.setLevel(logging.INFO if asked is Verbosity.VERBOSE else logging.WARNING)
    anyway = logging.INFO if asked is Verbosity.NORMAL else logging.NOTSET
    logging.getLogger(_TOLD_ANYWAY).setLevel(anyway)


def _asked(ctx: click.Context, option: click.Parameter, given: bool) -> None:
    _Told.verb = ctx.command_path.partition(" ")[2]
    if not given:
        return
    wanted = Verbosity.VERBOSE if option.name == "verbose" else Verbosity.QUIET
    if verbosity() not in (Verbosity.NORMAL, wanted):
        raise click.UsageError("-v and -q ask for more and for less", ctx)
    _set(wanted)


def reset() -> None:
    """What a command begins with."""
    _set(Verbosity.NORMAL)
    _Told.verb = ""


def with_flags(command: click.Command) -> click.Command:
    """`command` with the options -v and -q, and so have its own verbs."""
    names = {name for param in command.params for name in param.opts}
    if not names & set(FLAGS):
        command.params += [
            _flag("-v", "--verbose", "Say more: times of steps, tools, tracebacks of defects."),
            _flag("-q", "--quiet", "Say less: verdicts and errors."),
        ]
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            with_flags(inner)
    return command


def _flag(short: str, long: str, told: str) -> click.Option:
    return click.Option(
        [short, long], is_flag=True, expose_value=False, is_eager=True, callback=_asked, help=told
    )


def only_shows() -> None:
    """This call of a verb that judges only shows something: -q leaves nothing of that out."""
    _Told.verb = ""


# ---- colours and width ----------------------------------------------------------------------


def colours(*, err: bool = False) -> bool:
    """Whether stdout (`err`: stderr) takes colours: a terminal, and nobody set NO_COLOR to
    something (https://no-color.org)."""
    stream = sys.stderr if err else sys.stdout
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def live() -> bool:
    """Whether stderr shows lines that are renewed: a terminal that can erase, and no -q."""
    able = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return able and verbosity() is not Verbosity.QUIET


def width() -> int | None:
    """Columns of the terminal that stdout is; None where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def styled(text: str, *, err: bool = False, **style: Any) -> str:
    """`text` in a style, where there are colours."""
    wanted = text and any(style.values()) and colours(err=err)
    return click.style(text, **style) if wanted else text


def colour_of_fact(name: str, value: str) -> tuple[int, str] | None:
    """How many letters of a fact's value are its verdict, and their colour; None: it has none."""
    if name in _COUNTED and (number := re.match(r"\d+", value)):
        return number.end(), "green" if int(number[0]) == 0 else _COUNTED[name]
    if name in _JUDGED:
        for pattern, colour in ((_DOUBTFUL, "yellow"), (_BAD, "red"), (_GOOD, "green")):
            if found := pattern.match(value):
                return found.end(), colour
    if cell := colour_of_cell(value):
        return len(value), cell
    return None


def colour_of_cell(cell: str) -> str | None:
    """The colour of a table's cell that is a verdict."""
    return _CELLS.get(cell)


def painted(text: str, *, err: bool = False) -> str:
    """A line with the severity that it begins with in that one's colour."""
    found = _SEVERITY.match(text)
    if found is None:
        return text
    colour = "red" if found[1] == "error" else "yellow"
    return styled(found[0], err=err, fg=colour, bold=True) + text[found.end() :]

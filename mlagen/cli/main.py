"""`mlagen`: the group of verbs, and how errors leave the program.

Exit codes: 0 ok, 2 usage or refused, 3 wrong result, 4 findings, 5 a tool or an input is missing.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence

import click

# The oracles multiply small matrices: BLAS threads only spin against the emulator's.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from mlagen import __version__
from mlagen.cli import terminal
from mlagen.errors import MlagenError, ProofError
from mlagen.untrusted import indented, printable

VERBS = {
    "list": "Kernels, targets, fields and knobs.",
    "build": "Build a kernel: .co, .s and manifest.",
    "audit": "Check waits, barriers and registers of machine code or PTX on all paths.",
    "emulate": "Run a kernel of a gfx950 code object, as a launch file says.",
    "mutate": "Put defects into a kernel and count those the emulator notices.",
    "verify": "Run a kernel in the emulator against its oracles.",
    "simulate": "Predict how fast a gfx950 kernel will be, and where its time goes.",
    "bench": "Time a kernel on this machine's GPU, beside other libraries.",
    "tune": "Find a kernel's best variant, and keep what was found.",
    "inspect": "A schedule with its derived waits; clusters, registers, LDS and waits of a kernel.",
    "diff": "What differs between two kernels.",
    "cache": "What is kept on this machine between runs, where, how big; removing it.",
    "doctor": "What this machine has, what it misses, and how to install it.",
}


class _Verbs(click.Group):
    """A group that imports a verb's module when the verb is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = importlib.import_module(f"mlagen.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return terminal.with_flags(command)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # click itself would print an empty line, terminal or not
            if sys.stderr.isatty():
                click.echo(err=True)  # after ^C
            raise click.Abort from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))  # help without importing every verb


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="mlagen")
def cli() -> None:
    """Attention kernels in real assembly, from readable schedules with proved waits."""


terminal.with_flags(cli)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code; errors print, and trace only with -v."""
    terminal.reset()
    try:
        code = cli.main(args=arguments, prog_name="mlagen", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except ProofError as error:  # of a schedule, which is trusted: several diagnostics
        return _fail(error.message, error.hint, error.exit_code, spelled=printable)
    except MlagenError as error:
        return _fail(error.message, error.hint, error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "mlagen"
        return _fail(error.format_message(), f"{command} --help", 2)
    except click.ClickException as error:
        return _fail(error.format_message(), None, 2)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", None, 130)
    except BrokenPipeError:
        # The reader has left (`mlagen list | head`): keep the interpreter from flushing into it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return terminal.defect(error)


def main() -> None:
    """Entry point of the `mlagen` script."""
    sys.exit(run())


def _fail(
    message: str, hint: str | None, code: int, spelled: Callable[[str], str] = indented
) -> int:
    # A diagnostic says "error[kind]" already.
    told = message if message.startswith("error[") else f"error: {message}"
    click.echo(terminal.painted(spelled(told), err=True), err=True)
    if hint:
        click.echo(f"  hint: {indented(hint)}", err=True)
    return code

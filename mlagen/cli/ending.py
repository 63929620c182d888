"""How errors leave the program: the one place that makes exit codes of exceptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from mlagen.cli import terminal
from mlagen.cli.verbs import Interrupted, cli
from mlagen.errors import MlagenError, ProofError
from mlagen.untrusted import indented, printable, words

_USAGE, _MISSING = 2, 5


def ended(arguments: Sequence[str] | None) -> int:
    """Runs a command and returns its exit code. KeyboardInterrupt for an interrupt."""
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
        return _USAGE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "mlagen"
        return _fail(error.format_message(), f"{command} --help", _USAGE)
    except click.ClickException as error:
        return _fail(error.format_message(), None, _USAGE)
    except (click.Abort, Interrupted):
        raise KeyboardInterrupt from None
    except OSError as error:  # a disk that is full, a file that nobody may read
        named = f"{error.filename}: " if error.filename is not None else ""
        return _fail(f"{named}{error.strerror or words(error)}", None, _MISSING)
    except MemoryError as error:
        told = f": {error}" if str(error) else ""
        return _fail(f"this machine has not enough memory{told}", "smaller sizes fit", _MISSING)
    except Exception as error:
        return terminal.defect(error)


def _fail(
    message: str, hint: str | None, code: int, spelled: Callable[[str], str] = indented
) -> int:
    # A diagnostic says "error[kind]" already.
    told = message if message.startswith("error[") else f"error: {message}"
    click.echo(terminal.painted(spelled(told), err=True), err=True)
    if hint:
        click.echo(f"  hint: {indented(hint)}", err=True)
    return code

"""The group of verbs: one module a verb, imported when the verb is used."""

from __future__ import annotations

import importlib

import click

from mlagen import __version__
from mlagen.cli import terminal

VERBS = {
    "list": "Kernels, targets, fields and knobs.",
    "build": "Build a kernel: .co, .s and manifest.",
    "audit": "Check waits, barriers and registers of machine code or PTX on all paths.",
    "emulate": "Run a kernel of a gfx950 code object or of PTX, as a launch file says.",
    "mutate": "Put defects into a kernel and count those the checkers notice.",
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
            raise Interrupted from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))  # help without importing every verb


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="mlagen")
def cli() -> None:
    """Attention kernels in real assembly, from readable schedules with proved waits.

    To look at what there is: list, inspect, diff, doctor. To make kernels: build, tune. To judge
    them, anybody's too: verify, emulate, audit, mutate, simulate, bench.

    The pages lie in docs/ of the repository, docs/README.md lists them; README.md has all commands.
    Exit codes: 0 ok, 2 usage or refused, 3 wrong result, 4 findings, 5 a tool or input is missing,
    6 nothing wrong was found, but not all was checked.
    """


terminal.with_flags(cli)


class Interrupted(Exception):
    """An interrupt, on its way past click, which would take it for one of its own prompts."""

"""`mlagen simulate`: how fast a gfx950 binary will be, and where its time goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlagen.app.texts import BuildTexts
from mlagen.cli import terminal
from mlagen.cli.options import build_options, json_option, launch_options, problem_option
from mlagen.cli.printing import print_facts, print_json, print_table, say
from mlagen.cli.progress import progress_bar
from mlagen.cli.replacing import force_option
from mlagen.cli.types import COUNT, NAME, OUT_FILE
from mlagen.disk import exists
from mlagen.errors import ConfigError

if TYPE_CHECKING:
    from mlagen.timing import Job, Machine

_SCHEMA = 2  # of the reports: times are under a power limit since


@dataclass(frozen=True)
class _Call:
    """What is run of a kernel. `limits`: allow_outside, max_memory, max_instructions."""

    shapes: tuple[str, ...]
    problem_file: str | None
    workgroups: tuple[str, ...]
    tiles: int | None
    limits: tuple[bool, int | None, int | None]


@click.command("simulate")
@click.argument("path", type=NAME, metavar="FILE.co|ARTIFACT|KERNEL", required=False)
@build_options
@click.option(
    "--launch", "launch_path", type=NAME, metavar="FILE.toml", help="Grid, arguments of a FILE.co."
)
@click.option("--kernel", metavar="NAME", help="Which kernel of a code object with several.")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=SIZE",
              help="A size of an artifact's call, as for verify.")  # fmt: skip
@problem_option
@click.option("--workgroups", multiple=True, metavar="X,Y,Z",
              help="Simulate this one; may be repeated. Default: three of the grid.")  # fmt: skip
@click.option("--constant", "constants", multiple=True, metavar="NAME=VALUE",
              help="Another value of a constant of the model; --constants lists them.")  # fmt: skip
@click.option("--constants", "list_constants", is_flag=True, help="Print the table of constants.")
@launch_options
@click.option("--max-instructions", type=click.IntRange(1),
              help="Most of a workgroup of a FILE.co. Default: 4,000,000.")  # fmt: skip
@click.option("--tiles", type=click.IntRange(1), help="Tiles that a loop iteration does.")
@click.option("--against", type=NAME, metavar="FILE.co|ARTIFACT",
              help="Compare with this one, in every corner of the grid.")  # fmt: skip
@click.option(
    "--against-launch", type=NAME, metavar="FILE.toml", help="Default: the same launch file."
)
@click.option(
    "--timeline",
    type=OUT_FILE,
    metavar="FILE.html|FILE.svg",
    help="Write a page, or a picture, of what each wave does.",
)
@click.option(
    "--trace", type=OUT_FILE, metavar="FILE.json", help="Write a trace for ui.perfetto.dev."
)
@click.option("--window", metavar="FIRST:LAST",
              help="Cycles of --timeline, --trace. Default: two passes of the loop, one in a "
              "picture; all.")  # fmt: skip
@click.option("--no-grid", is_flag=True, help="Leave out the sensitivity grid.")
@click.option("--lines", type=COUNT, default=12, show_default=True, help="Stalls spelled out.")
@force_option
@json_option
def command(
    path: str | None,
    texts: BuildTexts,
    launch_path: str | None,
    kernel: str | None,
    shapes: tuple[str, ...],
    problem_file: str | None,
    workgroups: tuple[str, ...],
    allow_outside: bool,
    max_memory: int | None,
    max_instructions: int | None,
    constants: tuple[str, ...],
    list_constants: bool,
    tiles: int | None,
    against: str | None,
    against_launch: str | None,
    timeline: str | None,
    trace: str | None,
    window: str | None,
    no_grid: bool,
    lines: int,
    as_json: bool,
) -> None:
    """Predict time, cycles per tile and stalls of a gfx950 kernel, each with the model's error.

    A code object needs a launch file; an artifact, or a KERNEL to build, the sizes of a call.
    """
    from mlagen.timing import simulate
    from mlagen.timing.events import parse_window
    from mlagen.timing.text import facts, tables

    if list_constants:
        _print_constants(as_json)
        return
    if path is None:
        raise ConfigError("nothing to simulate", hint="name a code object, an artifact or a kernel")
    limits = (allow_outside, max_memory, max_instructions)
    call = _Call(shapes, problem_file, workgroups, tiles, limits)
    if window is not None and timeline is None and trace is None:
        raise ConfigError("--window goes with --timeline and --trace")
    shown = None if window is None else parse_window(window)
    if against_launch is not None and against is None:
        raise ConfigError("--against-launch goes with --against")
    machine = machine_of(constants)
    job = _job(path, texts, launch_path, kernel, call)
    if against is not None:
        theirs = BuildTexts(target=texts.target, allow_unproved=texts.allow_unproved)
        launched = (against_launch or launch_path) if _is_code(against) else None
        _compare(job, _job(against, theirs, launched, None, call), machine, as_json)
        return
    title = "simulating" if no_grid else "simulating, in every corner of the model"
    with progress_bar(title) as progress:
        report = simulate(job, machine, grid=not no_grid, progress=progress)
    with progress_bar("writing"):
        written = _write(job, machine, timeline, trace, shown)
    if as_json:
        print_json("simulate", report, version=_SCHEMA)
        return
    print_facts(facts(report))
    for table in tables(report, lines=lines):
        say()
        print_table(table.title, table.columns, table.rows)
    for warning in report.warnings:
        say(f"\nassumed: {warning}")
    for line in written:
        say(f"\n{line}")


def _write(
    job: Job,
    machine: Machine,
    timeline: str | None,
    trace: str | None,
    window: tuple[int, int] | None,
) -> list[str]:
    if timeline is None and trace is None:
        return []
    from mlagen.timing.events import steady_window
    from mlagen.timing.picture import write_picture
    from mlagen.timing.roles import hot_loops
    from mlagen.timing.simulate import longest, time_job
    from mlagen.timing.trace import write_page, write_trace

    unit = longest(time_job(job, machine))
    lines = []
    if timeline is not None:
        drawn = Path(timeline).suffix == ".svg"
        chosen = window or steady_window(unit, hot_loops(unit, job.tiles)[0], 1 if drawn else 2)
        title = f"{job.kernel.name}: prediction of cycles {chosen[0]} to {chosen[1]}"
        count = (write_picture if drawn else write_page)(unit, chosen, timeline, title, job.place)
        lines.append(f"timeline: {timeline}, {count} events, cycles {chosen[0]} to {chosen[1]}")
    if trace is not None:
        count = write_trace(unit, window or (0, unit.cycles), trace, job.place)
        lines.append(f"trace: {trace}, {count} events")
    return lines


def _compare(first: Job, second: Job, machine: Machine, as_json: bool) -> None:
    from mlagen.timing.compare import compare
    from mlagen.timing.text import comparison_facts, comparison_table

    with progress_bar("simulating both, in every corner") as progress:
        found = compare(first, second, machine, progress=progress)
    if as_json:
        print_json("simulate-comparison", found, version=_SCHEMA)
        return
    print_facts(comparison_facts(found))
    table = comparison_table(found)
    say()
    print_table(table.title, table.columns, table.rows)


def machine_of(constants: Sequence[str]) -> Machine:
    """The cycle model's machine, some constants changed. ConfigError: no number, or no constant."""
    from mlagen.app.texts import assignments
    from mlagen.timing import machine

    values = {}
    for name, text in assignments("--constant", constants).items():
        try:
            values[name] = float(text)
        except ValueError:
            raise ConfigError(f"--constant {name}={text!r} is not a number") from None
    return machine().changed(**values)


def _job(
    path: str,
    texts: BuildTexts,
    launch_path: str | None,
    kernel: str | None,
    call: _Call,
) -> Job:
    from mlagen.app.cycle_jobs import job_of_artifact, job_of_launch, sizes_of
    from mlagen.cli.emulate import parse_workgroup
    from mlagen.cli.subjects import artifact_of

    groups = [parse_workgroup(text) for text in call.workgroups]
    outside, most_memory, most_instructions = call.limits
    if _is_code(path) and Path(path).suffix != ".py":
        if launch_path is None:
            raise ConfigError("--launch is missing",
                              hint="mlagen emulate FILE.co --template prints one")  # fmt: skip
        for option, given in (
            ("--set", texts.fields),
            ("--knob", texts.knobs),
            ("--shape", call.shapes),
            ("--problem", call.problem_file),
        ):
            if given:
                raise ConfigError(f"{option} is for artifacts; {path} is a code object")
        with progress_bar("recording"):
            return job_of_launch(path, launch_path, groups=groups, kernel=kernel, tiles=call.tiles,
                                 allow_outside=outside, max_memory=most_memory,
                                 max_instructions=most_instructions)  # fmt: skip
    if launch_path is not None:
        raise ConfigError("--launch is for a code object", hint="--shape sizes an artifact's call")
    artifact = artifact_of(path, texts)
    sizes = sizes_of(artifact, call.shapes, call.problem_file)
    with progress_bar("recording"):
        return job_of_artifact(artifact, sizes, groups=groups, tiles=call.tiles, steady=True)


def _is_code(path: str) -> bool:
    return exists(path) and not Path(path).is_dir()


def _print_constants(as_json: bool) -> None:
    from mlagen.timing import CONSTANTS

    terminal.only_shows()
    if as_json:
        print_json("constants", {"constants": CONSTANTS})
        return
    columns = ("name", "value", "low", "high", "unit", "source")
    rows = [(c.name, f"{c.value:g}", f"{c.low:g}", f"{c.high:g}", c.unit, c.source)
            for c in CONSTANTS]  # fmt: skip
    print_table("constants of the cycle model", columns, rows)

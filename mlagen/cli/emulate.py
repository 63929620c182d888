"""`mlagen emulate`: run a kernel of a gfx950 code object or of PTX as a launch file says."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlagen.cli import terminal
from mlagen.cli.options import json_option, launch_options, seed_option
from mlagen.cli.printing import print_facts, print_json, print_table, say
from mlagen.cli.progress import Progress, progress_bar
from mlagen.cli.ptx_files import named, read_text
from mlagen.cli.replacing import force_option, forced
from mlagen.cli.types import COUNT, NAME, OUT_FOLDER
from mlagen.cli.weighing import Demand, demand_options
from mlagen.errors import ConfigError, FindingsError
from mlagen.severity import UNPROVED, counted, failing, of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mlagen.binary import CodeObject
    from mlagen.emulator import SanitizerFinding
    from mlagen.emulator.launching import LaunchFile, LaunchRun
    from mlagen.ptx import Module


@click.command("emulate")
@click.argument("file", type=NAME, metavar="FILE.co|FILE.ptx")
@click.option(
    "--launch", "launch_path", type=NAME, metavar="FILE.toml", help="Grid, block, arguments, data."
)
@click.option("--template", "wants_template", is_flag=True, help="Print a launch file to fill in.")
@click.option("--kernel", metavar="NAME", help="Which kernel, for --template.")
@click.option(
    "--mode",
    type=click.Choice(["latest", "earliest", "random"]),
    default="latest",
    show_default=True,
    help="When asynchronous transfers complete.",
)
@seed_option
@click.option("--fast", is_flag=True, help="PTX: sums of tensor cores in fp32, not bit for bit.")
@click.option("--no-sanitizer", is_flag=True, help="Execute only; no checks, no findings.")
@click.option("--trace-nan", is_flag=True, help="Tell where NaN and Inf come from.")
@click.option("--threads", type=click.IntRange(1), help="Default: one a core.")
@click.option(
    "--workgroups",
    "workgroups",
    multiple=True,
    metavar="X,Y,Z",
    help="Run this workgroup only; may be repeated.",
)
@click.option(
    "--max-instructions",
    type=click.IntRange(1),
    help="Most wave-instructions of a workgroup; without it a loop without end runs on.",
)
@launch_options
@demand_options
@click.option(
    "--out",
    type=OUT_FOLDER,
    metavar="DIR",
    help="Where outputs go. Default: the launch file's folder.",
)
@click.option(
    "--max", "shown", type=COUNT, default=10, show_default=True, help="Findings spelled out."
)
@force_option
@json_option
def command(
    file: str,
    launch_path: str | None,
    wants_template: bool,
    kernel: str | None,
    mode: Any,
    seed: int,
    fast: bool,
    no_sanitizer: bool,
    trace_nan: bool,
    threads: int | None,
    workgroups: tuple[str, ...],
    max_instructions: int | None,
    allow_outside: bool,
    max_memory: int | None,
    demand: Demand,
    out: str | None,
    shown: int,
    as_json: bool,
) -> None:
    """Execute a kernel with its memory and a sanitizer; no GPU. --template prints a launch file.

    Exit code 4: the sanitizer has errors. 6: none, but --strict and something is unproved.
    """
    from mlagen.emulator import Settings
    from mlagen.emulator.launching import MAX_MEMORY, Files, read_launch_file, run_launch

    code = _read(file)
    if wants_template:
        terminal.only_shows()
        say(_template(code, kernel).removesuffix("\n"))
        return
    _check_options(code, fast, trace_nan)
    if kernel is not None:
        raise ConfigError("--kernel goes with --template", hint="kernel = in the launch file")
    if launch_path is None:
        raise ConfigError("--launch is missing", hint="--template prints a launch file to fill in")
    launch = read_launch_file(launch_path)
    groups = [parse_workgroup(text) for text in workgroups]
    with _progress(launch, len(groups)) as (progress, executed):
        run = run_launch(
            code,
            launch,
            Settings(
                mode=mode,
                seed=seed,
                sanitize=not no_sanitizer,
                threads=threads,
                workgroups=groups or None,
                max_instructions=max_instructions,
                trace_nonfinite=trace_nan,
                exact=not fast,
            ),
            files=Files(
                out=out,
                write=True,
                allow_outside=allow_outside,
                max_memory=max_memory or MAX_MEMORY,
                force=forced(),
            ),
            progress=progress,
            executed=executed,
        )
    if as_json:
        print_json("emulate", _report(run), version=2)
    else:
        _print(run, shown, trace_nan)
    wrong = len(failing(run.result.findings, demand.fail_on)) + len(run.damage)
    if wrong:
        raise FindingsError(f"the sanitizer found {wrong} defects" if wrong > 1 else "one defect")
    demand.require_proved(len(of(run.result.findings, UNPROVED)), 0)


def _read(file: str) -> CodeObject | Module:
    """A file of either kind, by its ending."""
    if Path(file).suffix != ".ptx":
        from mlagen.binary import read_code_object

        return read_code_object(file)
    from mlagen.ptx import read_ptx

    text = read_text(Path(file))
    with named(file):
        return read_ptx(text)


def _template(code: CodeObject | Module, kernel: str | None) -> str:
    """A launch file to fill in, which says first where no launch of the kernel would run."""
    from mlagen.emulator.launching import entry_of, template, template_ptx, why_refused
    from mlagen.ptx import Module

    if isinstance(code, Module):
        entry = entry_of(code, kernel)
        text, why = template_ptx(entry), why_refused(code, entry)
    else:
        one = code.kernel(kernel)
        text, why = template(one), why_refused(one)
    return f"# Not executed by mlagen emulate: {why}.\n{text}" if why else text


def _check_options(code: CodeObject | Module, fast: bool, trace_nan: bool) -> None:
    """ConfigError for an option of the other kind of file."""
    from mlagen.ptx import Module

    if isinstance(code, Module) and trace_nan:
        raise ConfigError("--trace-nan is for gfx950 code; the PTX emulator does not follow NaN")
    if not isinstance(code, Module) and fast:
        raise ConfigError("--fast is for PTX; gfx950's arithmetic is always bit for bit")


def parse_workgroup(text: str) -> tuple[int, int, int]:
    """`X,Y,Z` of --workgroups. ConfigError for anything else."""
    try:
        parts = [int(part) for part in text.split(",")]
    except ValueError:
        parts = []
    if not 1 <= len(parts) <= 3:
        raise ConfigError(f"--workgroups {text} is no workgroup", hint="X,Y,Z, such as 3,0,1")
    x, y, z = (*parts, 0, 0)[:3]
    return x, y, z


@contextmanager
def _progress(
    launch: LaunchFile, chosen: int
) -> Iterator[tuple[Progress | None, Callable[[int], None] | None]]:
    """Callbacks for workgroups done, or for instructions where there is one workgroup only."""
    x, y, z = launch.grid
    total = chosen or (len(launch.workgroups) if launch.workgroups is not None else x * y * z)
    with progress_bar("emulating") as advance:
        if advance is None or total != 1:
            yield advance, None
        else:
            yield None, advance.count


def _report(run: LaunchRun) -> dict[str, Any]:
    result = run.result
    return {
        "kernel": run.kernel.name,
        "workgroups": run.workgroups,
        "wave_instructions": result.wave_instructions,
        "seconds": result.seconds,
        "counts": dict(result.counts),
        "unset_arguments": run.unset,
        "arguments_beyond_segment": run.beyond,
        "findings": [asdict(finding) for finding in result.findings],
        "dropped_findings": result.dropped_findings,
        "unlanded_stores": [asdict(store) for store in result.unlanded],
        "guard_damage": [asdict(damage) for damage in run.damage],
        "outputs": [asdict(output) for output in run.outputs],
        "nonfinite": [_plain(asdict(origin)) for origin in result.nonfinite],
        "nonfinite_outputs": [_plain(asdict(output)) for output in result.nonfinite_outputs],
    }


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are told as text."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return str(value)
    return value


def _print(run: LaunchRun, shown: int, traced: bool) -> None:
    result = run.result
    for finding in result.findings[:shown]:
        _print_finding(run, finding)
    if len(result.findings) > shown:
        say(f"… and {len(result.findings) - shown} more findings (--max {len(result.findings)})\n")
    for damage in run.damage:
        say(f"{damage}\n")
    if traced:
        _print_nonfinite(run, shown)
    if run.outputs:
        columns = ("name", "dtype", "shape", "NaN", "Inf", "min", "max", "unwritten", "file")
        rows = [
            (
                o.name,
                o.dtype,
                "x".join(map(str, o.shape)),
                str(o.nans),
                str(o.infs),
                "-" if o.minimum is None else f"{o.minimum:.6g}",
                "-" if o.maximum is None else f"{o.maximum:.6g}",
                str(o.unwritten),
                o.path,
            )
            for o in run.outputs
        ]
        print_table("outputs", columns, rows)
        say()
    counts = sorted(result.counts.items(), key=lambda item: -item[1])
    print_table("executed", ("mnemonic", "count"), [(name, str(count)) for name, count in counts])
    say()
    facts = [
        ("kernel", run.kernel.name),
        ("workgroups", str(run.workgroups)),
        ("executed", f"{result.wave_instructions} wave-instructions in {result.seconds:.2f} s"),
    ]
    if run.unset:
        facts.append(("unset", ", ".join(run.unset)))
    if run.beyond:
        facts.append(("not passed", f"{', '.join(run.beyond)}: past the argument segment"))
    for store in result.unlanded:
        facts.append(
            ("never landed", f"{store.asm} at {store.pc:#x}: {store.count} times, no lane in range")
        )
    facts.append(("findings", counted([*result.findings, *run.damage])))
    print_facts(facts)


def _print_finding(run: LaunchRun, finding: SanitizerFinding) -> None:
    from mlagen.emulator.launching.listing import around

    say(f"{finding.severity}[{finding.kind}]: {finding.message}{_beside(finding)}")
    times = f", {finding.count} times" if finding.count > 1 else ""
    say(f"  first in workgroup {finding.workgroup}{times}")
    places = [finding.pc]
    if finding.other_pc is not None and finding.other_pc != finding.pc:
        places.append(finding.other_pc)
    for place in sorted(places):
        say("".join(f"    {line}\n" for line in around(run.kernel, place)))


def _beside(finding: SanitizerFinding) -> str:
    """What a finding of PTX has besides: what `.loc` says."""
    from mlagen.emulator import PtxFinding

    if not isinstance(finding, PtxFinding):
        return ""
    text = ""
    places = ((finding.line, finding.location), (finding.other_line, finding.other_location))
    for line, place in dict.fromkeys(places):
        text += f"\n  line {line} is of {place}" if place else ""
    return text


def _print_nonfinite(run: LaunchRun, shown: int) -> None:
    from mlagen.emulator.launching.listing import around

    result = run.result
    for output in result.nonfinite_outputs[:shown]:
        say(str(output))
    if result.nonfinite_outputs:
        say()
    # The code's own infinities are masks as a rule; what is left is what went wrong.
    constants = [origin for origin in result.nonfinite if origin.kind == "constant"]
    origins = [origin for origin in result.nonfinite if origin.kind != "constant"]
    for origin in origins[:shown] or constants[:1]:
        say(str(origin))
        say("".join(f"    {line}\n" for line in around(run.kernel, origin.pc)))
    if len(origins) > shown:
        say(f"… and {len(origins) - shown} more origins of NaN and Inf\n")
    if constants:
        say(f"{len(constants)} places take in infinities of the code itself (masks)\n")
    if not result.nonfinite and not result.nonfinite_outputs:
        say("no NaN or Inf\n")

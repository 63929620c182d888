"""`mlagen audit`: static checks of PTX text or gfx950 machine code, on all paths, not run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlagen.cli.options import json_option, seed_option
from mlagen.cli.types import COUNT, NAME, Amount
from mlagen.cli.weighing import Demand, demand_options
from mlagen.disk import exists
from mlagen.errors import ConfigError, MissingError
from mlagen.untrusted import SECONDS

if TYPE_CHECKING:
    from mlagen.emulator.launching import LaunchFile


@click.command("audit")
@click.argument("files", type=NAME, metavar="FILE.co|FILE.ptx|ARTIFACT…", nargs=-1, required=True)
@click.option("--kernel", metavar="NAME", help="Which kernel of a code object with several.")
@click.option(
    "--threads", type=COUNT, default=0, help="Threads of a workgroup, where the code does not say."
)
@click.option("--advice", is_flag=True, help="Also what costs speed only.")
@click.option("--jobs", default=1, show_default=True, help="Files audited side by side.")
@click.option(
    "--launch",
    "launch_path",
    type=NAME,
    metavar="FILE.toml",
    help="The launch file of `mlagen emulate`: grid, block, cluster, arguments, dynamic memory.",
)
@click.option(
    "--lds",
    type=COUNT,
    metavar="BYTES",
    help="Code objects: LDS that the launch asks for beyond the kernel's own.",
)
@click.option(
    "--limit",
    type=COUNT,
    default=0,
    metavar="STEPS",
    help="Code objects: steps of each part of the audit; 20 million by default.",
)
@click.option(
    "--box",
    "boxes",
    multiple=True,
    metavar="NAME=BYTES",
    help="PTX: bytes that one copy through a tensor map moves, by the map's parameter.",
)
@click.option(
    "--smem",
    type=COUNT,
    default=0,
    metavar="BYTES",
    help="PTX: the launch's dynamic shared memory.",
)
@click.option(
    "--trips", type=COUNT, default=0, help="PTX: rounds of unknown loops; from the ring if 0."
)
@click.option(
    "--manifest", type=NAME, metavar="FILE", help="PTX: default manifest.json beside the file."
)
@click.option(
    "--max-seconds",
    type=Amount(0),
    metavar="SECONDS",
    help=f"PTX: CPU time, after which all is reported as unchecked; 0: none. Default: {SECONDS:g}.",
)
@demand_options
@click.option(
    "--cluster",
    type=COUNT,
    default=0,
    help="PTX: blocks of a CTA cluster, where the text does not say.",
)
@click.option(
    "--mutate",
    "mutated",
    is_flag=True,
    help="Remove and weaken each synchronisation, one at a time; see if it is told.",
)
@click.option("--sample", default=0, help="Mutants to take at random; all by default.")
@seed_option
@click.option(
    "--max", "shown", type=COUNT, default=10, show_default=True, help="Findings spelled out."
)
@json_option
def command(
    files: tuple[str, ...],
    kernel: str | None,
    threads: int,
    advice: bool,
    jobs: int,
    launch_path: str | None,
    lds: int | None,
    limit: int,
    boxes: tuple[str, ...],
    smem: int,
    trips: int,
    manifest: str | None,
    max_seconds: float | None,
    demand: Demand,
    cluster: int,
    mutated: bool,
    sample: int,
    seed: int,
    shown: int,
    as_json: bool,
) -> None:
    """Audit gfx950 code objects, PTX files or artifacts' folders, without running them.

    Code objects: waits, LDS order, barriers, wait states. PTX: wgmma, mbarriers,
    shared memory, fences, named barriers, registers.

    Exit code 4: errors. 6: none, but no path of a kernel was followed, or --strict and
    something is unproved or unchecked.
    """
    if not mutated and (sample or seed):
        raise ConfigError("--sample and --seed choose mutants", hint="add --mutate")
    paths = [_code_in(Path(file)) for file in files]
    ptx = [path for path in paths if path.suffix == ".ptx"]
    launch = launch_file(launch_path)
    if not ptx:
        other = {"--box": boxes, "--smem": smem, "--trips": trips, "--manifest": manifest,
                 "--max-seconds": max_seconds is not None, "--cluster": cluster}  # fmt: skip
        _refuse(
            other,
            "code object",
            "--lds BYTES is what a launch asks for beyond the kernel's own"
            if smem
            else "--kernel, --threads, --advice, --jobs, --launch, --lds and --limit do",
        )
        from mlagen.cli.audit_gfx950 import ObjectAuditRequest, audit_files, mutate_file

        asked = ObjectAuditRequest(kernel, threads, limit, launch, lds)
        if mutated:
            if len(paths) > 1:
                raise ConfigError(f"--mutate takes one code object, not {len(paths)}")
            mutate_file(paths[0], asked, sample, seed, as_json)
            return
        audit_files(paths, asked, advice, jobs, shown, demand, as_json)
        return
    if len(ptx) < len(paths):
        raise ConfigError(
            f"{len(ptx)} of {len(paths)} files are PTX", hint="audit code objects and PTX apart"
        )
    _refuse(
        {"--kernel": kernel, "--limit": limit, "--lds": lds is not None},
        "PTX file",
        "its entries are all audited" if lds is None else "--smem BYTES is PTX's",
    )
    from mlagen.cli import audit_ptx

    most = SECONDS if max_seconds is None else max_seconds
    wanted = audit_ptx.PtxAuditRequest(
        boxes, smem, threads, trips, cluster, manifest, most, launch, advice
    )
    if mutated:
        if len(paths) > 1:
            raise ConfigError(f"--mutate takes one PTX file, not {len(paths)}")
        audit_ptx.mutate_file(paths[0], files[0], wanted.given(paths[0]), sample, seed, as_json)
        return
    named = list(zip(paths, files, strict=True))
    audit_ptx.audit_files(named, wanted, jobs, shown, demand, as_json)


def launch_file(path: str | None) -> LaunchFile | None:
    """What `--launch` names."""
    if path is None:
        return None
    from mlagen.emulator.launching import read_launch_file

    return read_launch_file(path)


def _code_in(path: Path) -> Path:
    """The code of an artifact's folder, or the file itself."""
    if not exists(path) or not path.is_dir():
        return path
    for name in ("kernel.ptx", "kernel.co"):
        if (path / name).is_file():
            return path / name
    raise MissingError(
        f"{path} cannot be read: it has neither kernel.co nor kernel.ptx",
        hint="name a code object, a PTX file, or the folder of an artifact",
    )


def _refuse(asked: dict[str, object], kind: str, hint: str) -> None:
    given = [name for name, value in asked.items() if value]
    if given:
        raise ConfigError(f"{', '.join(given)}: not an option for a {kind}", hint=hint)

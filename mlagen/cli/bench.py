"""`mlagen bench`: a kernel's speed on the GPU at hand, beside other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mlagen.cli.options import build_options, json_option
from mlagen.cli.report import print_facts, print_json, print_table, progress_bar
from mlagen.errors import ConfigError, WrongResultError

if TYPE_CHECKING:
    from mlagen.families.mla_decode.kernel import MlaDecodeKernel
    from mlagen.ops import Kernel


@click.command("bench")
@click.argument("kernel", metavar="KERNEL|ARTIFACT_DIR")
@build_options
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=SIZE[,SIZE]",
    help="batch and keys of a call, and least, where lengths are to be drawn from least .. keys. "
    "Several values of a size: every combination is timed.",
)
@click.option(
    "--peers",
    metavar="NAME[,NAME]",
    help="Libraries to compare with, or `none`. Default: all that are installed.",
)
@click.option("--repeats", default=30, show_default=True, help="Timed calls of each contender.")
@click.option("--seed", default=0, show_default=True, help="Of the tensors and the drawn lengths.")
@click.option("--plot", "plotted", metavar="FILE.png", help="Draw the report, too (.svg, .pdf).")
@json_option
def command(
    kernel: str,
    target: str | None,
    fields: tuple[str, ...],
    knobs: tuple[str, ...],
    templates: str | None,
    allow_unproved: bool,
    shapes: tuple[str, ...],
    peers: str | None,
    repeats: int,
    seed: int,
    plotted: str | None,
    as_json: bool,
) -> None:
    """Time KERNEL and other libraries on the same tensors of this machine's GPU.

    A kernel that its oracles do not pass is not timed (exit code 3), nor is a library that is
    wrong.
    """
    from mlagen.bench import bench, workloads
    from mlagen.bench.cuda_lab import CudaLab
    from mlagen.bench.peers import chosen
    from mlagen.bench.plot import check_path, plot
    from mlagen.request import artifact_of, callable_of

    if repeats < 1:
        raise ConfigError(f"--repeats {repeats} is not at least 1")
    names = None if peers is None else [] if peers == "none" else peers.split(",")
    opponents, sizes = chosen(names), _sizes(shapes)
    path = None if plotted is None else check_path(plotted)
    artifact = artifact_of(
        kernel, fields, knobs, target=target, templates=templates, allow_unproved=allow_unproved
    )
    made = _benched(callable_of(artifact))
    works = workloads(made.config, sizes, seed=seed)
    with progress_bar("timing") as progress:
        report = bench(
            artifact.manifest.kernel, works, opponents, CudaLab(made), repeats=repeats,
            progress=progress,
        )  # fmt: skip
    if path is not None:
        plot(report, path)
    if as_json:
        print_json("bench", report.to_json())
    else:
        print_facts(report.headline())
        click.echo()
        print_table("times", report.COLUMNS, report.table())
    if report.wrong:
        raise WrongResultError("not timed, as it is wrong: " + "; ".join(report.wrong))


def _sizes(shapes: tuple[str, ...]) -> dict[str, list[int]]:
    from mlagen.bench.workload import SIZES
    from mlagen.request import parse_sizes

    sizes = parse_sizes(shapes, SIZES)
    return {name: size if isinstance(size, list) else [size] for name, size in sizes.items()}


def _benched(kernel: Kernel) -> MlaDecodeKernel:
    """The kernel. ConfigError for one of a kind that is not timed."""
    from mlagen.families.mla_decode.kernel import MlaDecodeKernel

    if not isinstance(kernel, MlaDecodeKernel):
        manifest = kernel.artifact.manifest
        hint = "kernels that are timed: mla_decode_sm90"
        if manifest.target == "gfx950":
            hint += "; `mlagen simulate` predicts how fast a gfx950 kernel will be"
        raise ConfigError(f"{manifest.kernel} ({manifest.target}) has no benchmark", hint=hint)
    return kernel

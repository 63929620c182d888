"""`mlagen bench`: a kernel's speed on the GPU at hand, beside other libraries."""

from __future__ import annotations

import click

from mlagen.app.texts import BuildTexts
from mlagen.cli.options import build_options, json_option, problem_option, seed_option
from mlagen.cli.printing import print_facts, print_json, print_table
from mlagen.cli.progress import progress_bar
from mlagen.cli.replacing import force_option
from mlagen.cli.types import NAME, OUT_FILE
from mlagen.errors import ConfigError, WrongResultError


@click.command("bench")
@click.argument("kernel", type=NAME, metavar="KERNEL|FILE.py|ARTIFACT_DIR")
@build_options
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=SIZE[,SIZE]",
    help="A size of a call, such as batch; an unknown name lists the kernel's. Several values of "
    "a size: every combination is timed.",
)
@problem_option
@click.option(
    "--peers",
    metavar="NAME[,NAME]",
    help="Libraries to compare with, or `none`. Default: all that are installed.",
)
@click.option("--repeats", default=30, show_default=True, help="Timed calls of each contender.")
@seed_option
@click.option(
    "--plot",
    "plotted",
    type=OUT_FILE,
    metavar="FILE.png",
    help="Draw the report, too (.svg, .pdf).",
)
@force_option
@json_option
def command(
    kernel: str,
    texts: BuildTexts,
    shapes: tuple[str, ...],
    problem_file: str | None,
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
    from mlagen.app.build import callable_of
    from mlagen.app.texts import parse_sizes
    from mlagen.bench import bench
    from mlagen.bench.plot import check_path, plot
    from mlagen.cli.subjects import artifact_of
    from mlagen.codegen.schedules import load
    from mlagen.family import family_of

    if repeats < 1:
        raise ConfigError(f"--repeats {repeats} is not at least 1")
    path = None if plotted is None else check_path(plotted)
    artifact = artifact_of(kernel, texts)
    if problem_file is not None:
        load(problem_file, artifact.manifest.target)
    benchmark = family_of(artifact).benchmark(artifact)
    names = None if peers is None else [] if peers == "none" else peers.split(",")
    opponents = benchmark.chosen(names)
    sizes = {
        name: size if isinstance(size, list) else [size]
        for name, size in parse_sizes(shapes, benchmark.sizes).items()
    }
    works = benchmark.works(artifact.manifest.problem, sizes, seed=seed)
    lab = benchmark.lab(callable_of(artifact))
    with progress_bar("timing") as progress:
        report = bench(
            artifact.manifest.kernel, benchmark, works, opponents, lab, repeats=repeats,
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

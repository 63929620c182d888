"""From what a user names to a job for the cycle model: recorded streams, sizes, sources.

The cycle model knows neither artifacts nor schedules; like `locate`, this is where they meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mlagen.errors import ConfigError, UnsupportedError
from mlagen.family import TileWalk, steady_tiles
from mlagen.launch import EmulatedLauncher
from mlagen.targets.registry import MODELLED

if TYPE_CHECKING:
    from mlagen.artifact import Artifact
    from mlagen.timing import Job

Group = tuple[int, int, int]
_RECORDED = 4_000_000  # wave-instructions of a workgroup
_SAMPLE = 3  # workgroups of a grid that are simulated unless the caller names some


def spread(grid: Group, count: int = _SAMPLE) -> list[Group]:
    """Some of a grid's workgroups: the first, the last, and others at even distances."""
    x, y, z = grid
    total = x * y * z
    chosen = sorted({round(i * (total - 1) / max(count - 1, 1)) for i in range(count)})
    return [(n % x, n // x % y, n // (x * y)) for n in chosen]


def job_of_launch(
    path: str,
    launch_path: str,
    *,
    groups: Sequence[Group],
    kernel: str | None,
    tiles: int | None,
    allow_outside: bool = False,
    max_memory: int | None = None,
    max_instructions: int | None = None,
) -> Job:
    """A job from a code object and a launch file (docs/emulate.md), with `run_launch`'s limits.

    A recording takes some 100 bytes an instruction, so `max_instructions` has a default here.
    """
    from mlagen.binary import read_code_object
    from mlagen.emulator import Settings
    from mlagen.emulator.launching import MAX_MEMORY, Files, read_launch_file, run_launch
    from mlagen.timing import Job

    code = read_code_object(path)
    _require_model(path, code.target)
    launch = read_launch_file(launch_path)
    if kernel is not None:
        launch = msgspec.structs.replace(launch, kernel=kernel)
    chosen = list(groups) or launch.workgroups or spread(launch.grid)
    run = run_launch(
        code,
        launch,
        Settings(
            sanitize=False,
            workgroups=chosen,
            record=True,
            max_instructions=max_instructions or _RECORDED,
        ),
        files=Files(allow_outside=allow_outside, max_memory=max_memory or MAX_MEMORY),
    )
    loaded = code.kernel(launch.kernel)
    return Job(
        loaded,
        run.result.streams,
        launch.grid,
        loaded.descriptor.lds_bytes + launch.dynamic_lds,
        footprint=sum(array.nbytes for array in run.arrays.values()),
        tiles=tiles,
    )


def _require_model(what: str, target: str) -> None:
    if target not in MODELLED:
        known = ", ".join(MODELLED)
        raise UnsupportedError(f"{what} is for {target}; the cycle model knows {known}")


def job_of_artifact(
    artifact: Artifact,
    shape: Mapping[str, Any],
    *,
    groups: Sequence[Group],
    tiles: int | None,
    seed: int = 0,
    steady: bool = False,
) -> Job:
    """A job from an artifact of mlagen on made-up inputs of its kind of problem.

    Results are not compared: `mlagen verify` does that. `steady`: ConfigError, before it runs, for
    a call whose loops are too short to tell cycles a tile.
    """
    from mlagen.binary import load_code_object
    from mlagen.timing import Job, ScheduleSource
    from mlagen.verify import kind_of

    manifest = artifact.manifest
    _require_model(manifest.kernel, manifest.target)
    kind = kind_of(artifact)

    def chosen(grid: Group) -> Sequence[Group]:
        return list(groups) or spread(grid)

    inputs = kind.simulated(artifact, chosen, seed=seed, **shape)
    if steady:
        _check_length(artifact, kind.trial(inputs).planned(artifact).walk)
    emulator = EmulatedLauncher(
        sanitize=False,
        workgroups=chosen,
        allow_unproved=True,
        record=True,
    )
    _, report = kind.trial(inputs).uncompared().run(artifact, emulator)
    if report.emulation is None or not report.emulation.streams:
        raise ConfigError(f"{manifest.kernel}: no workgroup ran, there is nothing to time")
    code = load_code_object(artifact.code)
    kernel = code.kernel(manifest.symbol)
    sources = {line.asm_line: line for line in manifest.source}

    def place(offset: int) -> ScheduleSource:
        line = sources.get(code.line_of(kernel, offset) or 0)
        if line is None or not line.schedule_line:
            return ScheduleSource()
        where = f"{Path(manifest.schedule_file).name}:{line.schedule_line}"
        return ScheduleSource(where, line.cluster, line.operation)

    return Job(
        kernel,
        report.emulation.streams,
        report.grid,
        kernel.descriptor.lds_bytes,
        footprint=report.tensor_bytes,
        tiles=tiles,
        place=place,
    )


def _check_length(artifact: Artifact, walk: TileWalk | None) -> None:
    from mlagen.timing.loops import FEWEST

    items = any(arg.name == "work_indptr" for arg in artifact.manifest.args)
    if walk is None or items:  # a workgroup with several items walks each of them
        return
    least = steady_tiles(artifact.manifest, FEWEST)
    if walk.tiles < least:
        raise ConfigError(
            f"the longest loop of this call walks {walk.tiles} tiles of {walk.step}; cycles a tile "
            f"are told from {least} tiles on",
            hint=f"{walk.size}={least * walk.step} and more, as far as the mask lets a row see it",
        )


def sizes_of(
    artifact: Artifact, shapes: Sequence[str], problem_file: str | None = None
) -> dict[str, Any]:
    """`NAME=SIZE` texts as the sizes of the artifact's kind of problem. `problem_file`: the
    schedule file that brings it, where it is none of the shipped ones."""
    from mlagen.app.texts import parse_sizes
    from mlagen.verify import kind_of

    if problem_file is not None:
        from mlagen.codegen.schedules import load

        load(problem_file, artifact.manifest.target)
    kind = kind_of(artifact)
    return parse_sizes(shapes, kind.sizes, kind.lists)

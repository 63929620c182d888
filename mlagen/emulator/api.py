"""`emulate`: the one call of the emulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from mlagen.binary import CodeObject, load_code_object
from mlagen.emulator.buffer import Triple
from mlagen.emulator.launch import EmulationResult, Launch, Mode, Settings
from mlagen.errors import ConfigError, MissingError, UnsupportedError
from mlagen.extras import install
from mlagen.ptx import Module, read_ptx
from mlagen.targets.gfx950.limits import GFX950

_DEFAULT = Settings()


def emulate(
    code: bytes | CodeObject | str | Module,
    launch: Launch,
    settings: Settings = _DEFAULT,
    *,
    progress: Callable[[int, int], None] | None = None,
    executed: Callable[[int], None] | None = None,
) -> EmulationResult:
    """Execute a kernel of a gfx950 code object (bytes, or what was read of them), or of PTX (its
    text, or what was read of it) as sm_90a does.

    `progress(done, total)` is called as workgroups finish, `executed(count)` every half a million
    wave-instructions of a workgroup with its count so far.

    Raises UnsupportedError before anything runs when the kernel uses what is not modelled,
    ConfigError for arguments that cannot be, BinaryError for code that cannot be read.
    """
    if settings.mode not in get_args(Mode):
        raise ConfigError(f"mode is {settings.mode!r}; it is one of: {', '.join(get_args(Mode))}")
    _check_dimensions("grid", launch.grid)
    _check_dimensions("block", launch.block)
    if settings.workgroups is not None and not len(settings.workgroups):
        raise ConfigError("workgroups names none", hint="without it all of the grid run")
    try:
        if isinstance(code, str | Module):
            return _ptx(code, launch, settings, progress, executed)
        return _gfx950(code, launch, settings, progress, executed)
    except ImportError as why:
        if getattr(why, "name", None) not in ("numba", "llvmlite"):
            raise
        raise MissingError(
            "the emulator's compiler is not installed: numba",
            hint=install("emulator"),
        ) from None


def _gfx950(
    code: bytes | CodeObject,
    launch: Launch,
    settings: Settings,
    progress: Callable[[int, int], None] | None,
    executed: Callable[[int], None] | None,
) -> EmulationResult:
    from mlagen.emulator.gfx950.machine import EmulatorRun, run_workgroups

    loaded = code if isinstance(code, CodeObject) else load_code_object(code)
    if loaded.target != GFX950.name:
        raise UnsupportedError(f"the emulator executes {GFX950.name} code, not {loaded.target}")
    for name in ("cluster", "dynamic_shared"):
        if getattr(launch, name):
            raise ConfigError(f"{name} is of PTX; gfx950 code knows none")
    chosen = settings.workgroups
    if chosen is None:
        chosen = _all_workgroups(launch.grid)
    for group in chosen:
        if len(group) != 3 or not all(0 <= g < n for g, n in zip(group, launch.grid, strict=True)):
            raise ConfigError(f"workgroup {group} lies outside the grid {launch.grid}")
    kernel = loaded.kernel(launch.kernel)
    return run_workgroups(EmulatorRun(kernel, launch, settings, tuple(chosen), executed), progress)


def _ptx(
    code: str | Module,
    launch: Launch,
    settings: Settings,
    progress: Callable[[int, int], None] | None,
    executed: Callable[[int], None] | None,
) -> EmulationResult:
    from mlagen.emulator.ptx.host.run import run_entry

    module = read_ptx(code) if isinstance(code, str) else code
    return run_entry(module, launch, settings, progress, executed)


def _check_dimensions(name: str, value: Triple) -> None:
    if len(value) != 3 or any(int(part) < 1 for part in value):
        raise ConfigError(f"{name} is {value}; it is three numbers of at least 1")


def _all_workgroups(grid: Triple) -> list[Triple]:
    return [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]

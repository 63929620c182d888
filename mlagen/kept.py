"""What mlagen keeps on this machine between runs: where it lies, how big it is, and removing it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlagen import env
from mlagen.errors import ConfigError, MissingError


@dataclass(frozen=True, slots=True)
class Kept:
    """One kind of things that are kept. `count` of `what` lie below `path`, `bytes` in all."""

    name: str
    what: str
    path: str
    count: int
    bytes: int


def kept() -> tuple[Kept, ...]:
    """Built kernels, the compiled engines of the emulators, the compiled cycle model and tuning
    results, in this order. Nothing is made by looking; what is not there has no bytes."""
    return tuple(
        Kept(name, what, str(where), len(paths), sum(map(_bytes, paths)))
        for name, what, where, paths in _places()
    )


def remove(names: Sequence[str]) -> tuple[Kept, ...]:
    """Remove what has these names, and say what it was; without names all that can be made again:
    kernels, engines and model. Tuning results go when they are named. ConfigError for an unknown
    name, MissingError where something cannot be removed."""
    known = {name: (name, where, paths) for name, _, where, paths in _places()}
    for name in names:
        if name not in known:
            raise ConfigError(f"nothing kept is called {name!r}", hint=f"names: {', '.join(known)}")
    wanted = names or tuple(name for name in known if name != "tuning")
    removed = tuple(each for each in kept() if each.name in wanted)
    for name in wanted:
        for path in known[name][2]:
            try:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            except OSError as error:
                raise MissingError(f"{path} cannot be removed: {error.strerror}") from error
            with contextlib.suppress(OSError):  # the folder of the key's first letters, when empty
                if name == "kernels":
                    path.parent.rmdir()
    return removed


def _places() -> Iterator[tuple[str, str, Path, list[Path]]]:
    """Name, what one of them is, the folder or file, and what lies there."""
    store = env.artifacts_dir()
    yield "kernels", "artifacts", store, sorted(store.glob("??/*"))
    for name, (folder, pattern) in _compiled().items():
        yield name, "files", folder, sorted(folder.glob(pattern))
    results = env.tuning_store()
    named = (results, *(results.with_name(results.name + end) for end in ("-wal", "-shm")))
    yield "tuning", "files", results, [path for path in named if path.exists()]


def _compiled() -> dict[str, tuple[Path, str]]:
    """What is compiled for this machine: its folder, and the pattern of its files there. Nothing
    without the compiler."""
    try:
        from mlagen.emulator.gfx950 import starting as gfx950
        from mlagen.emulator.ptx import starting as ptx
        from mlagen.timing import engine as model
    except (ImportError, MissingError):
        return {}
    return {
        "engine": gfx950.STARTER.files(),
        "ptx_engine": ptx.STARTER.files(),
        "model": model.compiled_files(),
    }


def _bytes(path: Path) -> int:
    inside = path.rglob("*") if path.is_dir() else (path,)
    return sum(each.stat().st_size for each in inside if each.is_file())

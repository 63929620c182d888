"""What mlagen keeps on this machine between runs: where it lies, how big it is, and removing it.

Only what mlagen made is counted and removed, and no link is followed. What lies beside it, where a
store is shared with something else, is left and told.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from mlagen import env
from mlagen.artifact.files import is_part, is_sealed
from mlagen.disk import is_waiting
from mlagen.errors import ConfigError, MissingError
from mlagen.removal import files, head, is_link, names, opened

_KEY = re.compile(r"[0-9a-f]{64}")
_MANIFEST = "manifest.json"
_HEAD = 1 << 10  # bytes of a manifest that say what it is


@dataclass(frozen=True, slots=True)
class KeptKind:
    """One kind of things that are kept. `count` of `what` lie below `path`, `bytes` in all. `left`:
    what lies there besides, each with why mlagen does not take it for its own."""

    name: str
    what: str
    path: str
    count: int
    bytes: int
    left: tuple[str, ...] = ()


@dataclass(slots=True)
class _Found:
    """What a look finds: how many, their bytes, and what removes each; why others are left."""

    count: int = 0
    bytes: int = 0
    removals: list[Callable[[], None]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def add(self, size: int, removal: Callable[[], None]) -> None:
        self.count += 1
        self.bytes += size
        self.removals.append(removal)


def kept() -> tuple[KeptKind, ...]:
    """Built kernels, the compiled engines of the emulators, the compiled cycle model, folders that
    killed builds left, and tuning results. Nothing is made by looking; what is not there has no
    bytes."""
    return tuple(_told(*place) for place in _places())


def remove(chosen: Sequence[str]) -> tuple[KeptKind, ...]:
    """Remove what has these names, and say what it was; without names all that can be made again:
    kernels, engines, model and folders of killed builds. Tuning results go when they are named.
    ConfigError for an unknown name, MissingError where something cannot be removed."""
    places = {place[0]: place for place in _places()}
    for name in chosen:
        if name not in places:
            known = ", ".join(places)
            raise ConfigError(f"nothing kept is called {name!r}", hint=f"names: {known}")
    wanted = chosen or tuple(name for name in places if name != "tuning")
    removed = tuple(_told(*place) for name, place in places.items() if name in wanted)
    for name in dict.fromkeys(wanted):
        _, _, where, found = places[name]
        for removal in found.removals:
            try:
                removal()
            except FileNotFoundError:
                continue  # another process was faster
            except OSError as error:
                told = error.filename or where
                raise MissingError(f"{told} cannot be removed: {error.strerror}") from error
    return removed


def _told(name: str, what: str, where: str, found: _Found) -> KeptKind:
    return KeptKind(name, what, where, found.count, found.bytes, tuple(found.left))


def _places() -> Iterator[tuple[str, str, str, _Found]]:
    """Name, what one of them is, the folder or file, and what lies there."""
    from mlagen.codegen.scratch import forgotten

    store = env.artifacts_dir()
    yield "kernels", "artifacts", str(store), _kernels(store)
    for name, (folder, pattern) in _compiled().items():
        told = "no folder can be written; NUMBA_CACHE_DIR names one"
        yield name, "files", told if folder is None else str(folder), _matching(folder, pattern)
    folders = _Found()
    for each in forgotten():
        _add_scratch(folders, each)
    yield "scratch", "folders of killed builds", tempfile.gettempdir(), folders
    results = env.tuning_store()
    yield "tuning", "files", str(results), _tuning(results)


def _compiled() -> dict[str, tuple[Path | None, str]]:
    """What is compiled for this machine: its folder, None where none can be written, and the
    pattern of its files there. Nothing without the compiler."""
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


def _kernels(store: Path) -> _Found:
    found = _Found()
    for folder in (store.parent, store):
        if is_link(folder):
            found.left.append(f"{folder}: a link; name the folder that it leads to")
            return found
    try:
        with opened(store) as handle:
            for letters in names(handle):
                _add_letters(found, store, letters, handle)
    except FileNotFoundError:
        pass
    except OSError as error:
        found.left.append(f"{store}: {error.strerror}")
    return found


def _add_letters(found: _Found, store: Path, letters: str, handle: int) -> None:
    if not re.fullmatch(r"[0-9a-f]{2}", letters):
        found.left.append(f"{store / letters}: no folder of the store")
        return
    try:
        with opened(letters, handle) as inner:
            _add_keys(found, store, letters, inner)
    except OSError:
        found.left.append(f"{store / letters}: a link or no folder")


def _add_keys(found: _Found, store: Path, letters: str, handle: int) -> None:
    for key in names(handle):
        at = store / letters / key
        if not (_KEY.fullmatch(key) and key.startswith(letters)):
            found.left.append(f"{at}: its name is no key of an artifact")
            continue
        try:
            with opened(key, handle) as folder:
                inside, sizes = names(folder), files(folder)
                sealed = is_sealed(head(folder, _MANIFEST, _HEAD))
        except OSError:
            found.left.append(f"{at}: a link or no folder")
            continue
        own = {name: size for name, size in sizes.items() if is_waiting(name)}
        if sealed:
            own |= {name: size for name, size in sizes.items() if is_part(name)}
        elif own.keys() != set(inside):
            found.left.append(f"{at}: no manifest of mlagen in it")
            continue
        if others := sorted(set(inside) - own.keys()):
            found.left.append(f"{at}: {', '.join(others[:3])}{' …' if others[3:] else ''}")
        found.add(sum(own.values()), partial(_drop, store, letters, key, own))


def _drop(store: Path, letters: str, key: str, own: dict[str, int]) -> None:
    """Remove these files of an artifact, the manifest first: what is left after a kill is no
    artifact. Then its folder and that of its key's first letters, where they are empty."""
    with opened(store) as root, opened(letters, root) as inner:
        with opened(key, inner) as folder:
            for name in sorted(own, key=lambda name: name != _MANIFEST):
                os.unlink(name, dir_fd=folder)
        with suppress(OSError):
            os.rmdir(key, dir_fd=inner)
            os.rmdir(letters, dir_fd=root)


def _matching(folder: Path | None, pattern: str) -> _Found:
    """Compiled code, and what numba was writing when it was killed."""
    found = _Found()
    if folder is None or is_link(folder):
        if folder is not None:
            found.left.append(f"{folder}: a link")
        return found
    with suppress(OSError), opened(folder) as handle:
        for name, size in sorted(files(handle).items()):
            if fnmatch(name, pattern) or fnmatch(name, f"{pattern}.tmp.*"):
                found.add(size, partial(_unlink, folder, name))
    return found


def _unlink(folder: Path, name: str) -> None:
    with opened(folder) as handle:
        os.unlink(name, dir_fd=handle)


def _add_scratch(found: _Found, folder: Path) -> None:
    from mlagen.codegen.scratch import remove_forgotten

    with suppress(OSError), opened(folder) as handle:
        sizes = files(handle)
        if others := sorted(set(names(handle)) - sizes.keys()):
            found.left.append(f"{folder}: {others[0]} is no file of a build")
        else:
            found.add(sum(sizes.values()), partial(remove_forgotten, folder))


def _tuning(results: Path) -> _Found:
    from mlagen.tune.database import is_store

    found = _Found()
    if is_link(results):
        found.left.append(f"{results}: a link; name the file that it leads to")
    elif results.exists() and not is_store(results):
        found.left.append(f"{results}: no store of tuning results")
    elif results.exists():
        for end in ("-wal", "-shm", ""):
            path = results.with_name(results.name + end)
            if path.is_file() and not is_link(path):
                found.add(path.stat().st_size, path.unlink)
    return found

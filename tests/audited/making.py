"""A kernel of the list → the file that is audited. What is not there yet is fetched or compiled."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from fetching import NotFetchedError, run, source_folder, tools
from listed import Listed, Listing

HERE = Path(__file__).parent
_MINUTES = 20  # of one compilation


@dataclass(frozen=True)
class Made:
    """The file, its hash, and what its compiler says of the launch, as options of the audit."""

    path: Path
    sha256: str
    options: tuple[str, ...] = ()


def make(kernel: Listed, listing: Listing, cache: Path) -> Made:
    """The kernel's file. NotFetchedError where it cannot be had here."""
    makers = {"object": _object, "cuda": _cuda, "triton": _triton, "case": _case, "ours": _ours}
    path, options = makers[kernel.kind](kernel, listing, cache)
    return Made(path, _digest(path), (*options, *kernel.options))


def _digest(path: Path) -> str:
    """The SHA-256 of a file; of PTX, without names that nvcc makes of its process's number."""
    lines = path.read_bytes().splitlines(keepends=True)
    if path.suffix == ".ptx":
        lines = [line for line in lines if b"_INTERNAL_" not in line]
    return hashlib.sha256(b"".join(lines)).hexdigest()


def _place(kernel: Listed, cache: Path) -> Path:
    """Where a compiled kernel lies: elsewhere when what makes it changes."""
    told = repr((kernel.file, kernel.unit, kernel.headers, kernel.function, kernel.compile))
    suffix = "ptx" if kernel.target.startswith("sm_") else "co"
    folder = cache / "made"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{kernel.name}.{hashlib.sha256(told.encode()).hexdigest()[:8]}.{suffix}"


def _object(kernel: Listed, listing: Listing, cache: Path) -> tuple[Path, tuple[str, ...]]:
    path = source_folder(listing.sources[kernel.source], cache) / kernel.file
    if path.read_bytes()[:4] != b"\x7fELF":
        raise NotFetchedError(f"{kernel.file} is no object: Git LFS has it, and did not bring it")
    return path, ()


def _cuda(kernel: Listed, listing: Listing, cache: Path) -> tuple[Path, tuple[str, ...]]:
    path = _place(kernel, cache)
    if not path.is_file():
        python = tools(listing.tools, cache)
        found = sorted(python.parents[1].glob("lib/python*/site-packages/nvidia/cu13"))
        if not found:
            raise NotFetchedError("the packages have no nvidia/cu13")
        folders = []
        for header in kernel.headers:
            source, _, folder = header.partition("/")
            folders.append(source_folder(listing.sources[source], cache) / folder)
        # nvcc names what is local to a unit by the unit's path: a fixed one gives a fixed text.
        work = cache / "units"
        work.mkdir(exist_ok=True)
        unit = work / f"{kernel.name}.cu"
        text = kernel.unit
        if kernel.file:
            file = source_folder(listing.sources[kernel.source], cache) / kernel.file
            text = f'#include "{file.name}"\n'
            folders.insert(0, file.parent)
        unit.write_text(text)
        part = path.with_suffix(".part")
        run(
            [str(found[0] / "bin" / "nvcc"), "-ptx", *listing.flags,
             *(f"-I{folder}" for folder in folders),
             f"-I{found[0] / 'include'}", f"-I{found[0] / 'include' / 'cccl'}",
             unit.name, "-o", str(part)],
            f"nvcc on {kernel.name}", cwd=work, timeout=60 * _MINUTES,
        )  # fmt: skip
        part.replace(path)
    return path, ()


def _triton(kernel: Listed, listing: Listing, cache: Path) -> tuple[Path, tuple[str, ...]]:
    file = source_folder(listing.sources[kernel.source], cache) / kernel.file
    return _by_compiler(kernel, listing, cache, {"file": str(file), "function": kernel.function})


def _case(kernel: Listed, listing: Listing, cache: Path) -> tuple[Path, tuple[str, ...]]:
    return _by_compiler(kernel, listing, cache, {"case": kernel.case})


def _by_compiler(
    kernel: Listed, listing: Listing, cache: Path, asked: dict[str, str]
) -> tuple[Path, tuple[str, ...]]:
    path = _place(kernel, cache)
    beside = path.with_suffix(".json")
    if not beside.is_file():
        here = find_spec("triton") is not None
        python = Path(sys.executable) if here else tools(listing.tools, cache)
        given = {**asked, "compile": kernel.compile, "target": kernel.target, "out": str(path)}
        # Lines of sources would put their paths into the text.
        env = {"TRITON_CACHE_DIR": str(cache / "triton"), "TRITON_DISABLE_LINE_INFO": "1"}
        run([str(python), str(HERE / "triton_texts.py"), json.dumps(given)],
            f"Triton on {kernel.name}", env, timeout=60 * _MINUTES)  # fmt: skip
    return path, tuple(json.loads(beside.read_text()))


def _ours(kernel: Listed, listing: Listing, cache: Path) -> tuple[Path, tuple[str, ...]]:
    folder = cache / "ours" / kernel.name
    run([sys.executable, "-m", "mlagen", "build", *kernel.build, "-o", str(folder), "-q"],
        f"mlagen build {' '.join(kernel.build)}")  # fmt: skip
    suffix = "ptx" if kernel.target.startswith("sm_") else "co"
    return next(folder.glob(f"*.{suffix}")), ()

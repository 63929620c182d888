"""Finds an assembler and a linker for a target.

It is looked for in this order: `$MLAGEN_CLANG` with `$MLAGEN_LLD`; ROCm (`$ROCM_PATH`, /opt/rocm);
clang >= 20 with lld on PATH; the `ziglang` wheel, whose one binary is both clang and lld. The first
that is there and assembles an instruction of the target is taken; one named by a variable must.

A probe is two short processes (together about 10 ms with the wheel), so that a build sees the tool
that is installed now and not one remembered from yesterday.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlagen import env
from mlagen.errors import ConfigError, MissingError

TRIPLE = "amdgcn-amd-amdhsa"
MINIMUM_CLANG = 20  # the first LLVM release that knows gfx950 (LLVM 20 release notes, AMDGPU)
INSTALL_HINT = (
    "pip install 'mlagen[amd]'   (the ziglang wheel: clang and lld)\n"
    "        or: apt install clang-20 lld-20, or ROCm 7 or newer"
)
# An instruction that only the target has: what assembles it can assemble our kernels.
PROBES = {"gfx950": "ds_read_b64_tr_b16 v[0:1], v2\n"}


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Commands that assemble and link. `versions` holds no path: the same tools, the same text."""

    clang: tuple[str, ...]
    lld: tuple[str, ...]
    name: str  # "environment", "rocm", "path" or "ziglang"
    versions: tuple[tuple[str, str], ...]  # (("clang", "22.1.8"), ("lld", "22.1.8"))

    @property
    def version(self) -> str:
        return ", ".join(f"{tool} {version}" for tool, version in self.versions)


@dataclass(frozen=True, slots=True)
class Tried:
    """One place that was looked at: the toolchain found there, or why there is none."""

    place: str
    toolchain: Toolchain | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Candidate:
    place: str
    name: str
    clang: tuple[str, ...] = ()
    lld: tuple[str, ...] = ()
    missing: str = ""  # why there is nothing to probe
    wheel: tuple[tuple[str, str], ...] = ()  # the wheel that brings both, with its version
    required: bool = False  # named by the user: nothing else will do


@functools.lru_cache(maxsize=4)
def find_tools(target: str) -> Toolchain:
    """The toolchain for `target`. MissingError: none works; names every place and why not."""
    tried = []
    for result, required in _search(target):
        if result.toolchain:
            return result.toolchain
        if required:
            raise MissingError(f"{result.place}: {result.reason}", hint=INSTALL_HINT)
        tried.append(f"\n  {result.place}: {result.reason}")
    raise MissingError(f"no assembler for {target}; looked at:{''.join(tried)}", hint=INSTALL_HINT)


def search(target: str) -> list[Tried]:
    """Every place in order with what was found there, not stopping at the first."""
    return [result for result, _ in _search(target)]


def _search(target: str) -> Iterator[tuple[Tried, bool]]:
    if target not in PROBES:
        raise ConfigError(
            f"no toolchain is known for the target {target!r}", hint=f"targets: {', '.join(PROBES)}"
        )
    for candidate in _candidates():
        yield _probe(candidate, target), candidate.required


def _candidates() -> Iterator[_Candidate]:
    yield from _from_environment()
    yield _from_rocm()
    yield _from_path()
    yield _from_wheel()


def _from_environment() -> Iterator[_Candidate]:
    clang, lld = os.environ.get(env.CLANG), os.environ.get(env.LLD)
    if not clang and not lld:
        return
    place = f"${env.CLANG} and ${env.LLD}"
    if not clang or not lld:
        unset = env.LLD if clang else env.CLANG
        yield _Candidate(place, "environment", missing=f"${unset} is not set", required=True)
        return
    for variable, command in ((env.CLANG, clang), (env.LLD, lld)):
        if not shutil.which(command):
            missing = f"${variable} = {command} is no program"
            yield _Candidate(place, "environment", missing=missing, required=True)
            return
    yield _Candidate(place, "environment", (clang,), (lld,), required=True)


def _from_rocm() -> _Candidate:
    root = Path(os.environ.get(env.ROCM_PATH) or "/opt/rocm")
    place = f"ROCm in {root}"
    if not root.is_dir():
        return _Candidate(place, "rocm", missing="no such directory")
    for folder in (root / "llvm" / "bin", root / "lib" / "llvm" / "bin"):
        clang, lld = folder / "clang", folder / "ld.lld"
        if clang.is_file() and lld.is_file():
            return _Candidate(place, "rocm", (str(clang),), (str(lld),))
    return _Candidate(place, "rocm", missing="no llvm/bin/clang with ld.lld")


def _from_path() -> _Candidate:
    suffixes = ("", *(f"-{n}" for n in range(MINIMUM_CLANG + 10, MINIMUM_CLANG - 1, -1)))
    found = [(s, path) for s in suffixes if (path := shutil.which(f"clang{s}"))]
    if not found:
        return _Candidate("PATH", "path", missing="no clang")
    best = _Candidate("PATH", "path", missing=f"no clang >= {MINIMUM_CLANG}")
    for suffix, clang in found:
        major = _major(_first_line((clang, "--version")))
        if major < MINIMUM_CLANG:
            continue
        lld = shutil.which(f"ld.lld{suffix}") or shutil.which(f"ld.lld-{major}")
        if lld:
            return _Candidate("PATH", "path", (clang,), (lld,))
        best = _Candidate("PATH", "path", missing=f"{clang} has no ld.lld-{major} beside it")
    return best


def _from_wheel() -> _Candidate:
    place = "the ziglang wheel"
    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.origin:
        return _Candidate(place, "ziglang", missing="not installed")
    folder = Path(spec.origin).parent
    zig = next((path for path in (folder / "zig", folder / "zig.exe") if path.is_file()), None)
    if zig is None:
        return _Candidate(place, "ziglang", missing=f"no zig in {folder}")
    wheel = (("ziglang", importlib.metadata.version("ziglang")),)
    return _Candidate(place, "ziglang", (str(zig), "clang"), (str(zig), "ld.lld"), wheel=wheel)


def _probe(candidate: _Candidate, target: str) -> Tried:
    if candidate.missing:
        return Tried(candidate.place, None, candidate.missing)
    clang = _first_line((*candidate.clang, "--version"))
    lld = _first_line((*candidate.lld, "--version"))
    for command, version in ((candidate.clang, clang), (candidate.lld, lld)):
        if not version:
            return Tried(candidate.place, None, f"{command[0]} --version does not run")
    flags = (f"--target={TRIPLE}", f"-mcpu={target}", "-c", "-x", "assembler", "-", "-o")
    done = run((*candidate.clang, *flags, os.devnull), text=PROBES[target])
    if done is None or done.returncode:
        return Tried(candidate.place, None, f"{clang} does not assemble for {target}")
    # "AMD clang version 20.0.0git (…)" and "LLD 22.1.8 (compatible with GNU linkers)"
    versions = (
        ("clang", clang.partition("clang version ")[2] or clang),
        ("lld", lld.removeprefix("LLD ").partition(" (compatible")[0]),
    )
    found = Toolchain(candidate.clang, candidate.lld, candidate.name, (*versions, *candidate.wheel))
    return Tried(candidate.place, found)


def run(
    command: Sequence[str], *, text: str | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str] | None:
    """Runs a tool with English messages; None when it cannot be started at all."""
    try:
        return subprocess.run(
            command,
            input=text,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _first_line(command: Sequence[str]) -> str:
    done = run(command)
    return done.stdout.split("\n", 1)[0].strip() if done and not done.returncode else ""


def _major(version: str) -> int:
    found = re.search(r"clang version (\d+)", version)
    # Apple numbers its clang differently and ships no AMDGPU backend.
    return int(found[1]) if found and not version.startswith("Apple") else 0

"""Finds clang and lld: what assembles and links for gfx950.

Looked for in this order: `$MLAGEN_CLANG` with `$MLAGEN_LLD`; ROCm (`$ROCM_PATH`, /opt/rocm);
clang >= 20 with lld on PATH; the `ziglang` wheel, whose one binary is both clang and lld.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from mlagen import env
from mlagen.codegen.tools import Candidate, Search, Tools, run
from mlagen.extras import install

TRIPLE = "amdgcn-amd-amdhsa"
MINIMUM_CLANG = 20  # the first LLVM release that knows gfx950 (LLVM 20 release notes, AMDGPU)
INSTALL_HINT = (
    f"{install('amd')}   (the ziglang wheel: clang and lld)\n"
    "        or: apt install clang-20 lld-20, or ROCm 7 or newer"
)
# An instruction that only the target has: what assembles it can assemble our kernels.
PROBE = "ds_read_b64_tr_b16 v[0:1], v2\n"


def _candidates() -> Iterator[Candidate]:
    yield from _from_environment()
    yield _from_rocm()
    yield _from_path()
    yield _from_wheel()


def _from_environment() -> Iterator[Candidate]:
    clang, lld = os.environ.get(env.CLANG), os.environ.get(env.LLD)
    if not clang and not lld:
        return
    place = f"${env.CLANG} and ${env.LLD}"
    if not clang or not lld:
        unset = env.LLD if clang else env.CLANG
        yield Candidate(place, "environment", missing=f"${unset} is not set", required=True)
        return
    for variable, command in ((env.CLANG, clang), (env.LLD, lld)):
        if not shutil.which(command):
            missing = f"${variable} = {command} is no program"
            yield Candidate(place, "environment", missing=missing, required=True)
            return
    yield Candidate(place, "environment", ((clang,), (lld,)), required=True)


def _from_rocm() -> Candidate:
    root = Path(os.environ.get(env.ROCM_PATH) or "/opt/rocm")
    place = f"ROCm in {root}"
    if not root.is_dir():
        return Candidate(place, "rocm", missing="no such directory")
    for folder in (root / "llvm" / "bin", root / "lib" / "llvm" / "bin"):
        clang, lld = folder / "clang", folder / "ld.lld"
        if clang.is_file() and lld.is_file():
            return Candidate(place, "rocm", ((str(clang),), (str(lld),)))
    return Candidate(place, "rocm", missing="no llvm/bin/clang with ld.lld")


def _from_path() -> Candidate:
    suffixes = ("", *(f"-{n}" for n in range(MINIMUM_CLANG + 10, MINIMUM_CLANG - 1, -1)))
    found = [(s, path) for s in suffixes if (path := shutil.which(f"clang{s}"))]
    if not found:
        return Candidate("PATH", "path", missing="no clang")
    best = Candidate("PATH", "path", missing=f"no clang >= {MINIMUM_CLANG}")
    for suffix, clang in found:
        major = _major(_first_line((clang, "--version")))
        if major < MINIMUM_CLANG:
            continue
        lld = shutil.which(f"ld.lld{suffix}") or shutil.which(f"ld.lld-{major}")
        if lld:
            return Candidate("PATH", "path", ((clang,), (lld,)))
        best = Candidate("PATH", "path", missing=f"{clang} has no ld.lld-{major} beside it")
    return best


def _from_wheel() -> Candidate:
    place = "the ziglang wheel"
    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.origin:
        return Candidate(place, "ziglang", missing="not installed")
    folder = Path(spec.origin).parent
    zig = next((path for path in (folder / "zig", folder / "zig.exe") if path.is_file()), None)
    if zig is None:
        return Candidate(place, "ziglang", missing=f"no zig in {folder}")
    wheel = (("ziglang", importlib.metadata.version("ziglang")),)
    commands = ((str(zig), "clang"), (str(zig), "ld.lld"))
    return Candidate(place, "ziglang", commands, wheel=wheel)


def _probe(candidate: Candidate, target: str) -> Tools | str:
    said = [_first_line((*command, "--version")) for command in candidate.commands]
    for command, line in zip(candidate.commands, said, strict=True):
        if not line:
            return f"{command[0]} --version does not run"
    clang, lld = said
    flags = (f"--target={TRIPLE}", f"-mcpu={target}", "-c", "-x", "assembler", "-", "-o")
    done = run((*candidate.commands[0], *flags, os.devnull), text=PROBE)
    if done is None or done.returncode:
        return f"{clang} does not assemble for {target}"
    # "AMD clang version 20.0.0git (…)" and "LLD 22.1.8 (compatible with GNU linkers)"
    versions = (
        ("clang", clang.partition("clang version ")[2] or clang),
        ("lld", lld.removeprefix("LLD ").partition(" (compatible")[0]),
    )
    return Tools(candidate.commands, candidate.name, (*versions, *candidate.wheel))


def _first_line(command: Sequence[str]) -> str:
    done = run(command)
    return done.stdout.split("\n", 1)[0].strip() if done and not done.returncode else ""


def _major(version: str) -> int:
    found = re.search(r"clang version (\d+)", version)
    # Apple numbers its clang differently and ships no AMDGPU backend.
    return int(found[1]) if found and not version.startswith("Apple") else 0


TOOLS = Search("assemblers", "assembler", INSTALL_HINT, _candidates, _probe)
find_tools = functools.lru_cache(maxsize=4)(TOOLS.first)

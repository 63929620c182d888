"""PTX to cubin: finds ptxas, assembles one kernel, and takes no warning for an answer.

ptxas is looked for in this order: `$MLAGEN_PTXAS`; the wheel `nvidia-cuda-nvcc`, whose version
`mlagen[nvidia]` pins; a CUDA installation (`$CUDA_HOME`, `$CUDA_PATH`, /usr/local/cuda, PATH).

ptxas says "info" where it undoes a schedule: it serialises wgmma, puts waits in, spills, or ignores
`setmaxnreg`. Here each of these ends the build, at the line that caused it.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mlagen import env
from mlagen.artifact import SourceLine
from mlagen.codegen.origin import Generated
from mlagen.codegen.scratch import scratch
from mlagen.codegen.tools import Candidate, Search, Tools, run
from mlagen.errors import ConfigError, MissingError, TemplateError
from mlagen.extras import install
from mlagen.targets.nvidia.cubin import CubinFacts, read_cubin
from mlagen.targets.nvidia.ptxas_messages import Message, explain, parse
from mlagen.targets.sm_90a.limits import SM_90A
from mlagen.targets.sm_100a.limits import SM_100A

WHEEL = "nvidia-cuda-nvcc"
MEASURED = "13.0.88"  # what the kernels were measured and all their forms assembled with
INSTALL_HINT = f"{install('nvidia')}\n        or: a CUDA toolkit, 12.0 or newer"
# An instruction that only the target has: what assembles it can assemble our kernels.
OWN = {
    SM_90A.name: (SM_90A.ptx_version, "wgmma.fence.sync.aligned"),
    SM_100A.name: (SM_100A.ptx_version, "tcgen05.fence::before_thread_sync"),
}
_ENTRY = re.compile(r"^ptxas info\s*: Compiling entry function '([^']+)'", re.M)
_STACK = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", re.M
)
_USED = re.compile(r"^ptxas info\s*: Used (\d+) registers", re.M)


def told(version: str) -> str:
    """A version of ptxas for a report, with the one that figures are of where it is another."""
    return version if version == MEASURED else f"{version} (measured with {MEASURED})"


@dataclass(frozen=True, slots=True)
class PtxasResult:
    """A cubin and what `ptxas -v` says of its one kernel. Sizes in bytes. `facts`: what the cubin
    itself says; None only where no ptxas made it."""

    cubin: bytes
    entry: str
    registers: int  # a thread has at entry
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    messages: tuple[Message, ...]
    facts: CubinFacts | None = None


def ptxas_flags(target: str) -> tuple[str, ...]:
    """All flags, paths apart. They are a part of an artifact's key.

    `-lineinfo` changes no instruction; it lets debuggers and compute-sanitizer name the PTX line.
    """
    return (f"-arch={target}", "-lineinfo", "-v")


def assemble_ptx(
    text: str,
    *,
    file_name: str,
    source_lines: Mapping[int, SourceLine],
    schedule_file: str,
    target: str = "sm_90a",
    toolchain: Tools | None = None,
) -> PtxasResult:
    """Assembles `text`, which holds one entry, and returns the cubin with its figures.

    `file_name` is the name messages carry (`gemm.ptx`); `source_lines` maps lines of the text to
    where they came from. The bytes depend on the text, the tool and the flags alone.

    Raises TemplateError for text that ptxas refuses; CapacityError where registers or shared memory
    ran out, spills included; ScheduleError where wgmma is serialised, a wait or fence had to be
    added, or setmaxnreg is ignored. All name instruction, line, template line and schedule line.
    MissingError without a ptxas.
    """
    if Path(file_name).name != file_name or not file_name.endswith(".ptx"):
        raise ConfigError(f"{file_name!r} is no plain file name ending in .ptx")
    tool = toolchain or find_ptxas(target)
    with scratch() as work:
        (work / file_name).write_text(text)
        command = (*tool.commands[0], *ptxas_flags(target), file_name, "-o", "kernel.cubin")
        done = run(command, cwd=work)
        if done is None:
            raise MissingError(f"{tool.commands[0][0]} cannot be run")
        said = f"{done.stdout}{done.stderr}"
        messages = parse(said, file_name)
        figures = {} if done.returncode else _figures(said)
        refusal = explain(
            messages,
            Generated(text, file_name, source_lines, schedule_file),
            tool=tool.version,
            spilled=(figures.get("spill_store_bytes", 0), figures.get("spill_load_bytes", 0)),
            registers=figures.get("registers", 0),
        )
        if refusal:
            raise refusal
        if done.returncode:
            raise TemplateError(f"{file_name} does not assemble ({tool.version}): {said.strip()}")
        entries = _ENTRY.findall(said)
        if len(entries) != 1:
            raise TemplateError(
                f"{file_name} has {len(entries)} kernels{': ' if entries else ''}"
                f"{', '.join(entries)}; one is made at a time"
            )
        cubin = (work / "kernel.cubin").read_bytes()
    facts = read_cubin(cubin, entries[0])
    return PtxasResult(cubin, entries[0], messages=messages, facts=facts, **figures)


def _figures(said: str) -> dict[str, int]:
    """The numbers of `ptxas -v`, each the largest over the functions of the text."""
    used = [int(found[1]) for found in _USED.finditer(said)]
    frames = [tuple(map(int, found.groups())) for found in _STACK.finditer(said)]
    stack, stored, loaded = map(max, zip((0, 0, 0), *frames, strict=True))
    return {
        "registers": max(used, default=0), "stack_bytes": stack, "spill_store_bytes": stored,
        "spill_load_bytes": loaded,
    }  # fmt: skip


def _candidates() -> Iterator[Candidate]:
    if chosen := os.environ.get(env.PTXAS):
        missing = "" if shutil.which(chosen) else f"{chosen} is no program"
        yield Candidate(f"${env.PTXAS}", "environment", ((chosen,),), missing, required=True)
    yield _from_wheel()
    for variable in (env.CUDA_HOME, env.CUDA_PATH):
        if root := os.environ.get(variable):
            yield _from_cuda(f"${variable} = {root}", Path(root))
    yield _from_cuda("CUDA in /usr/local/cuda", Path("/usr/local/cuda"))
    found = shutil.which("ptxas")
    yield Candidate("PATH", "path", ((found or "",),), "" if found else "no ptxas")


def _from_cuda(place: str, root: Path) -> Candidate:
    if not root.is_dir():
        return Candidate(place, "cuda", missing="no such directory")
    for name in ("ptxas", "ptxas.exe"):
        if (root / "bin" / name).is_file():
            return Candidate(place, "cuda", ((str(root / "bin" / name),),))
    return Candidate(place, "cuda", missing="no bin/ptxas")


def _from_wheel() -> Candidate:
    place = f"the {WHEEL} wheel"
    try:
        wheel = importlib.metadata.distribution(WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return Candidate(place, "wheel", missing="not installed")
    for file in wheel.files or ():
        if file.name in ("ptxas", "ptxas.exe") and Path(str(wheel.locate_file(file))).is_file():
            command = str(Path(str(wheel.locate_file(file))).resolve())
            return Candidate(place, "wheel", ((command,),))
    return Candidate(place, "wheel", missing=f"version {wheel.version} brings no ptxas")


def _probe_text(target: str) -> str:
    (major, minor), instruction = OWN.get(target, OWN[SM_90A.name])
    return (
        f".version {major}.{minor}\n.target {target}\n.address_size 64\n"
        f".entry probe() {{ {instruction}; ret; }}\n"
    )


def _probe(candidate: Candidate, target: str) -> Tools | str:
    ((command,),) = candidate.commands
    done = run((command, "--version"))
    # "Cuda compilation tools, release 13.0, V13.0.88"
    release = re.search(r"release [\d.]+, V([\d.]+)", done.stdout) if done else None
    if done is None or done.returncode or not release:
        return f"{command} --version does not run"
    with scratch() as work:
        (work / "probe.ptx").write_text(_probe_text(target))
        done = run((command, f"-arch={target}", "probe.ptx", "-o", "probe.cubin"), cwd=work)
    if done is None or done.returncode:
        return f"ptxas {release[1]} does not assemble for {target}"
    # Not the wheel's version besides: the same ptxas from a CUDA installation makes the same bytes.
    return Tools(candidate.commands, candidate.name, (("ptxas", release[1]),))


TOOLS = Search("assemblers for NVIDIA", "ptxas", INSTALL_HINT, _candidates, _probe)
find_ptxas = functools.lru_cache(maxsize=4)(TOOLS.first)

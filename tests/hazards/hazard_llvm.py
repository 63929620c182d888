"""Measures LLVM's padding between the pairs of `hazard_probes` and compares tables with it."""

from __future__ import annotations

import functools
import importlib.util
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hazard_probes import END, PROBES, START, Probe, module
from hazard_text import Line, listing

from mlagen.targets.gfx950.codegen.hazards import RULES, HazardInfo, HazardTracker, Unmet

# No scheduling: the order of the IR is the order of the listing.
FLAGS = (
    "-x", "ir", "-S", "-O2", "-nogpulib", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx950",
    "-mllvm", "-enable-misched=0", "-mllvm", "-enable-post-misched=0",
)  # fmt: skip


def available() -> bool:
    """True when the ziglang wheel, whose clang reads LLVM IR, is installed."""
    return importlib.util.find_spec("ziglang") is not None


@functools.lru_cache(maxsize=1)
def version() -> str:
    """First line of the compiler's version: "clang version 22.1.8"."""
    command = (sys.executable, "-m", "ziglang", "clang", "--version")
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return result.stdout.splitlines()[0].strip()


def run_tool(*command: str | Path) -> None:
    """Runs one of ziglang's tools; RuntimeError with what it printed when it fails."""
    words = (sys.executable, "-m", "ziglang", *map(str, command))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} refuses the probes:\n{done.stderr[:4000]}")


def compile_ir(text: str) -> str:
    """Assembly of an LLVM IR module."""
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "probes.ll"), Path(folder, "probes.s")
        source.write_text(text)
        run_tool("clang", *FLAGS, source, "-o", result)
        return result.read_text()


@dataclass(frozen=True, slots=True)
class Padding:
    """`s_nop` states before one instruction: LLVM's, and what the generator's table asks there."""

    text: str
    info: HazardInfo
    llvm: int
    generator: int
    unmet: tuple[Unmet, ...]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One probe, compiled. `llvm` and `generator` are the pair's wait states.

    `exact` is False when independent instructions already were enough for LLVM: then `llvm` is the
    distance, and LLVM asks at most that. `stream` holds every instruction of the probe.
    """

    probe: Probe
    producer: str
    consumer: str
    llvm: int
    exact: bool
    generator: int
    rules: tuple[str, ...]
    stream: tuple[Padding, ...]
    pair: tuple[int, int]  # indexes of producer and consumer in the stream

    @property
    def agrees(self) -> bool:
        pair = self.generator == self.llvm if self.exact else self.generator <= self.llvm
        return pair and all(step.llvm == step.generator for step in self.stream)


def _between(text: str, number: int) -> str:
    """The listing of probe `number` from the separating nop to its end mark."""
    body = re.search(rf"^p{number}:\s.*?^\.Lfunc_end", text, re.MULTILINE | re.DOTALL)
    if body is None:
        raise RuntimeError(f"clang dropped kernel p{number}")
    inner = body[0].partition(START)[2]
    return inner.partition(END)[0]


def _measure(probe: Probe, lines: list[Line]) -> Measurement:
    first = _find(probe, probe.producer, lines, 0)
    second = _find(probe, probe.consumer, lines, first + 1)
    while (later := _search(probe.producer, lines, first + 1)) is not None and later < second:
        first = later
    distance = sum(line.nops + 1 for line in lines[first + 1 : second]) + lines[second].nops
    exact = lines[second].nops > 0 or distance == 0
    pair = HazardTracker()
    pair.advance(lines[first].info)
    unmet = pair.explain(lines[second].info)

    history = HazardTracker()
    stream = []
    for line in lines:
        asked = history.explain(line.info)
        stream.append(
            Padding(line.text, line.info, line.nops, asked[0].states if asked else 0, asked)
        )
        history.nop(line.nops)
        history.advance(line.info)
    return Measurement(
        probe, lines[first].text, lines[second].text, distance, exact,
        unmet[0].states if unmet else 0, tuple(item.rule.name for item in unmet), tuple(stream),
        (first, second),
    )  # fmt: skip


def _search(pattern: str, lines: list[Line], start: int) -> int | None:
    for index in range(start, len(lines)):
        if lines[index].text.startswith(pattern):
            return index
    return None


def _find(probe: Probe, pattern: str, lines: list[Line], start: int) -> int:
    index = _search(pattern, lines, start)
    if index is None:
        listed = "\n  ".join(line.text for line in lines)
        raise RuntimeError(f"{probe.name}: no {pattern!r} from line {start} of\n  {listed}")
    return index


@functools.lru_cache(maxsize=1)
def probe_listing() -> str:
    """LLVM's assembly of every probe, in one run of the compiler."""
    return compile_ir(module())


@functools.lru_cache(maxsize=1)
def measurements() -> tuple[Measurement, ...]:
    """Every probe measured, in the order of `PROBES`."""
    text = probe_listing()
    return tuple(
        _measure(probe, listing(_between(text, number))) for number, probe in enumerate(PROBES)
    )


def unprovoked() -> tuple[str, ...]:
    """Names of the rules of the generator's table that no probe's pair meets."""
    met = {name for item in measurements() for name in item.rules}
    met |= {unmet.rule.name for item in measurements() for step in item.stream
            for unmet in step.unmet}  # fmt: skip
    return tuple(rule.name for rule in RULES if rule.name not in met)

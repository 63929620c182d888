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

from mlagen.codegen.gfx950.hazards import RULES, HazardTracker, Unmet

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


def compile_ir(text: str) -> str:
    """Assembly of an LLVM IR module."""
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "probes.ll"), Path(folder, "probes.s")
        source.write_text(text)
        command = (sys.executable, "-m", "ziglang", "clang", *FLAGS, str(source), "-o", str(result))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"clang refuses the probes:\n{done.stderr[:4000]}")
        return result.read_text()


@dataclass(frozen=True, slots=True)
class Padding:
    """`s_nop` states before one instruction: LLVM's, and what the generator's table asks there."""

    text: str
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
    lines: tuple[Line, ...]

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
    distance = sum(line.nops + 1 for line in lines[first + 1 : second]) + lines[second].nops
    exact = lines[second].nops > 0 or distance == 0
    pair = HazardTracker()
    pair.advance(lines[first].info)
    unmet = pair.explain(lines[second].info)

    history = HazardTracker()
    stream = []
    for line in lines:
        asked = history.explain(line.info)
        stream.append(Padding(line.text, line.nops, asked[0].states if asked else 0, asked))
        history.nop(line.nops)
        history.advance(line.info)
    return Measurement(
        probe, lines[first].text, lines[second].text, distance, exact,
        unmet[0].states if unmet else 0, tuple(item.rule.name for item in unmet), tuple(stream),
        tuple(lines),
    )  # fmt: skip


def _find(probe: Probe, pattern: str, lines: list[Line], start: int) -> int:
    for index in range(start, len(lines)):
        if re.match(re.escape(pattern), lines[index].text):
            return index
    listed = "\n  ".join(line.text for line in lines)
    raise RuntimeError(f"{probe.name}: no {pattern!r} from line {start} of\n  {listed}")


@functools.lru_cache(maxsize=1)
def measurements() -> tuple[Measurement, ...]:
    """Every probe compiled, in one run of the compiler."""
    text = compile_ir(module())
    return tuple(
        _measure(probe, listing(_between(text, number))) for number, probe in enumerate(PROBES)
    )


def unprovoked() -> tuple[str, ...]:
    """Names of the rules of the generator's table that no probe's pair meets."""
    met = {name for item in measurements() for name in item.rules}
    met |= {unmet.rule.name for item in measurements() for step in item.stream
            for unmet in step.unmet}  # fmt: skip
    return tuple(rule.name for rule in RULES if rule.name not in met)

"""Cases of the fuzzer for the PTX emulator: texts and launch files, changed at random.

As in `fuzz_cases`, a case is made from (class, seed, number) alone. It is read, translated and
executed between pages that nobody may touch; files may not be written.
"""

from __future__ import annotations

import functools
import math
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from ptx_fuzz_kernels import FRAME, KERNELS, LAUNCH, LAUNCHED, TENSOR_FRAME
from ptx_fuzz_text import EXTREMES, changed, noisy, rearranged, statement, tensor
from ptx_guards import guarded

from mlagen.audit.ptx import audit_ptx
from mlagen.emulator import Argument, Buffer, Launch, Settings, TensorMap, emulate
from mlagen.emulator.launching import read_launch_file, run_launch
from mlagen.emulator.ptx.program import translate
from mlagen.emulator.ptx.starting import STARTER
from mlagen.errors import ConfigError, MlagenError
from mlagen.ptx import Module, Parameter, read_ptx

MOST_INSTRUCTIONS = 600  # of a cluster
_MOST_CLUSTERS = 40  # of a launch
_SECONDS = 2.0  # of CPU time of an audit
_DIMENSIONS = {"m1": (256,), "m2": (64, 24), "m3": (32, 8, 6), "m4": (32, 4, 4, 3),
               "m5": (32, 4, 3, 3, 2)}  # fmt: skip
_BOXES = {"m1": (64,), "m2": (64, 4), "m3": (16, 4, 2), "m4": (16, 2, 2, 2), "m5": (16, 2, 2, 1, 2)}


@dataclass(frozen=True)
class Case:
    """A text and, for `ptx launches`, a launch file."""

    text: str
    launch: str | None = None


@functools.lru_cache(maxsize=1)
def _files() -> list[str]:
    """Whole kernels: of the schedules, and of the folder MLAGEN_FOREIGN_PTX."""
    from mlagen.codegen import build
    from mlagen.families.mla_decode.problem import MlaDecodeConfig
    from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
    from mlagen.targets.nvidia.ptxas import PtxasResult

    unassembled = PtxasResult(b"", "", 0, 0, 0, 0, ())
    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=unassembled):
        made = [
            build("mla_decode_sm90", MlaDecodeConfig(16)),
            build("mla_decode_merge_sm90", MlaDecodeMergeConfig(20)),
        ]
    found = [artifact.text for artifact in made]
    folder = os.environ.get("MLAGEN_FOREIGN_PTX")
    for file in sorted(Path(folder).rglob("*.ptx")) if folder else ():
        text = file.read_text(errors="replace")
        if len(text) < 400_000:
            found.append(text)
    return found


def _frame(body: list[str], source: random.Random) -> str:
    """Statements in the frame, with labels L0 to L3 among them."""
    places = sorted(source.randrange(len(body) + 1) for _ in range(4))
    lines = [f"{line};" for line in body]
    for label, at in reversed(list(enumerate(places))):
        lines.insert(at, f"L{label}:")
    return FRAME.replace("BODY", "\n".join(lines))


def _translates(text: str) -> bool:
    """Whether the emulator takes a text."""
    try:
        module = read_ptx(text)
        translate(module, module.entries[0])
    except MlagenError:
        return False
    except Exception:
        return True  # a failure, which the case that has it will show
    return True


@functools.cache
def _pool(number: int) -> list[str]:
    """Statements that the emulator takes, made once: most changed ones are refused."""
    source = random.Random(f"pool/{number}")
    found: list[str] = []
    while len(found) < 160:
        line = statement(4, source)
        if _translates(_frame([line], random.Random(0))):
            found.append(line)
    return found


def _tensor_frame(body: list[str], group: str) -> str:
    lines = "\n".join(f"{line};" for line in body) + "\nL0: L1: L2: L3:"
    return TENSOR_FRAME.replace("BODY", lines).replace("GROUP", group)


@functools.cache
def _tensor_pool(group: str) -> list[str]:
    """Statements with tcgen05 that the emulator takes."""
    source = random.Random(f"tensors/{group}")
    found: list[str] = []
    while len(found) < 100:
        line = tensor(group, source)
        if _translates(_tensor_frame([line], group)):
            found.append(line)
    return found


def pieces(source: random.Random) -> Case:
    """Statements of every kind in any order: anything, or what is executed."""
    count = source.choice((1, 2, 3, 5, 8, 16, 30))
    if source.random() < 0.3:
        return Case(_frame([statement(4, source) for _ in range(count)], source))
    body = [source.choice(_pool(source.randrange(6))) for _ in range(count)]
    return Case(_frame(body, source))


def kernels(source: random.Random) -> Case:
    """Small kernels that do what they should, with a few changes."""
    return Case(rearranged(source.choice(KERNELS), source.choice((1, 1, 2, 4)), source))


def files(source: random.Random) -> Case:
    """Whole kernels of schedules and compilers, with a few changes."""
    return Case(rearranged(source.choice(_files()), source.choice((1, 2, 4)), source))


def tensors(source: random.Random) -> Case:
    """tcgen05 in any order, with a few statements of other kinds."""
    group = source.choice(("cta_group::1", "cta_group::1", "cta_group::2"))
    count = source.choice((1, 2, 3, 5, 8, 16))
    other = source.choice((0, 0.1, 0.3))
    body = [
        source.choice(_pool(0) if source.random() < other else _tensor_pool(group))
        for _ in range(count)
    ]
    if source.random() < 0.2:
        at = source.randrange(count)
        body[at] = changed(body[at], source)
    return Case(_tensor_frame(body, group))


def noise(source: random.Random) -> Case:
    """Texts that are hardly PTX."""
    return Case(noisy(source.choice(KERNELS), source))


_NUMBERS = (*EXTREMES[:38], "3", "4", "24", "128", "-4")
_WORDS = (
    *_NUMBERS, "true", "false", '"f32"', '"bf16"', '"u8"', '"x"', '"out"', '"/etc/passwd"',
    '"in.npy"', '"cut.npy"', '"wide.npy"', '"../in.npy"', '"128B"', '"nan"', "[]", "[1]", "[[1]]",
    "[0, 0, 0]", "[1, 1, 1]", "[2, 1, 1]", "[4294967296]", "{}", "inf", "nan", '""', "1.5",
)  # fmt: skip


def _other_value(value: str, source: random.Random) -> str:
    """A value that is mostly of the same kind."""
    if source.random() < 0.15:
        return source.choice(_WORDS)
    if value.startswith('"'):
        return source.choice([word for word in _WORDS if word.startswith('"')])
    if value.startswith("["):
        numbers = value.strip("[]").split(",")
        numbers[source.randrange(len(numbers))] = source.choice(_NUMBERS)
        if source.random() < 0.15:
            numbers.append("1")
        return (
            value[: len(value) - len(value.lstrip("["))]
            + ",".join(numbers)
            + "]" * (len(value) - len(value.rstrip("]")))
        )
    return source.choice(_NUMBERS)


def launches(source: random.Random) -> Case:
    """A launch file with a few lines changed."""
    lines = LAUNCH.splitlines()
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        at = source.randrange(len(lines))
        line, kind = lines[at], source.random()
        if kind < 0.75 and "=" in line:
            name, _, value = line.partition("=")
            lines[at] = f"{name}= {_other_value(value.strip(), source)}"
        elif kind < 0.85:
            lines.pop(at)
        elif kind < 0.88:
            lines.insert(source.randrange(len(lines)), line)
        elif kind < 0.95:
            other = source.choice(lines).partition("=")[2]
            lines[at] = line.partition("=")[0] + "=" + other
        else:
            place = source.randrange(len(line) + 1)
            lines[at] = line[:place] + source.choice('"[]{}=.#\0x-9') + line[place + 1 :]
    return Case(LAUNCHED, "\n".join(lines))


CLASSES: dict[str, Callable[[random.Random], Case]] = {
    "ptx pieces": pieces,
    "ptx kernels": kernels,
    "ptx files": files,
    "ptx tensors": tensors,
    "ptx noise": noise,
    "ptx launches": launches,
}


def make(name: str, seed: int, number: int) -> tuple[Case, random.Random]:
    """Case `number` of a class, and the source of randomness for its launch."""
    source = random.Random(f"{name}/{seed}/{number}")
    return CLASSES[name](source), source


_written: list[str] = []
_watching = False


def _watch(event: str, arguments: Any) -> None:
    """Notes files that are opened for writing, made, moved or removed."""
    if not _watching:
        return
    if event == "open":
        path, mode, flags = arguments
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes or (isinstance(mode, str) and set(mode) & set("wxa+")):
            _written.append(f"open {path}")
    elif event in ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink",
                   "os.truncate", "subprocess.Popen", "os.system", "socket.connect"):  # fmt: skip
        _written.append(f"{event} {arguments}")


@functools.lru_cache(maxsize=1)
def _install() -> None:
    """The hook cannot be taken away; the engine is compiled, which writes a cache, before."""
    STARTER.start()
    sys.addaudithook(_watch)


@contextmanager
def _no_files() -> Iterator[None]:
    """Nothing inside writes a file, or starts a process."""
    global _watching
    _install()
    _written.clear()
    _watching = True
    try:
        yield
    finally:
        _watching = False
    assert not _written, _written


@functools.lru_cache(maxsize=1)
def _folder() -> Path:
    """A folder with arrays that launch files name."""
    folder = tempfile.mkdtemp(prefix="ptx_fuzz")
    np.save(Path(folder, "in.npy"), np.arange(64, dtype=np.float32))
    whole = Path(folder, "in.npy").read_bytes()
    Path(folder, "cut.npy").write_bytes(whole[:140])
    Path(folder, "wide.npy").write_bytes(whole.replace(b"(64,)", b"(99999999999,)"))
    return Path(folder)


def _argument(parameter: Parameter, offset: int, source: random.Random) -> list[Argument]:
    if parameter.size == 128 and parameter.align >= 64:
        name = parameter.name if parameter.name in _DIMENSIONS else "m2"
        dims, box = _DIMENSIONS[name], _BOXES[name]
        array = np.zeros(dims[::-1], np.uint16)
        strides = tuple(2 * math.prod(dims[:axis]) for axis in range(1, len(dims)))
        swizzle = "128B" if name == "m2" and source.random() < 0.5 else "none"
        made = TensorMap(
            Buffer(name, array), "bf16", dims, strides, box, swizzle=swizzle,
            fill=source.choice(("zeros", "nan")),
        )  # fmt: skip
        return [Argument(offset, made)]
    if parameter.size == 8:
        access = source.choice((*4 * ("readwrite",), "read"))
        array = np.frombuffer(
            source.randbytes(source.choice((64, 4096, 4096, 4096))), np.uint8
        ).copy()
        return [Argument(offset, Buffer(f"{parameter.name} {offset}", array, access))]
    value = source.choice((0, 1, 32, 128, 0xFFFFFFFF))
    kind = {1: np.uint8, 2: np.uint16, 4: np.uint32}.get(parameter.size)
    return [Argument(offset, kind(value & ((1 << 8 * parameter.size) - 1)))] if kind else []


def _launch(module: Module, source: random.Random) -> Launch:
    """A launch that fits the first entry, mostly."""
    entry = source.choice(module.entries)
    offset, arguments = 0, []
    for parameter in entry.parameters[:100]:
        offset = -(-offset // parameter.align) * parameter.align
        arguments += _argument(parameter, offset, source)
        offset += parameter.size
    threads = tuple(entry.block) if entry.block else (source.choice((32, 32, 64, 128, 37, 1)),)
    block = (*threads, 1, 1)[:3]
    cluster = tuple(entry.cluster) if entry.cluster else (source.choice((1, 1, 1, 2, 4)),)
    cluster = (*cluster, 1, 1)[:3]
    grid = tuple(c * source.choice((1, 1, 1, 2)) for c in cluster)
    return Launch(
        grid,  # type: ignore[arg-type]
        block,  # type: ignore[arg-type]
        arguments,
        kernel=entry.name,
        cluster=cluster if entry.cluster or max(cluster) > 1 else None,  # type: ignore[arg-type]
        dynamic_shared=source.choice((0, 0, 1024, 100_000)),
    )


def _few(done: int, total: int) -> None:
    if done >= _MOST_CLUSTERS:
        raise ConfigError("a grid so large has not ended")


def judge(case: Case, source: random.Random) -> str:
    """Take a case through the reader and the emulator: what came of it. Only an MlagenError may be
    raised."""
    step = "read"
    settings = Settings(
        sanitize=source.random() < 0.8,
        mode=source.choice(["latest", "earliest", "random"]),
        seed=source.getrandbits(16),
        threads=1,
        exact=source.random() < 0.5,
        max_instructions=MOST_INSTRUCTIONS,
    )
    folder = _folder()
    if case.launch is not None:
        (folder / "launch.toml").write_text(case.launch)
    try:
        with _no_files():
            module = read_ptx(case.text)
            if case.launch is not None:
                step = "launch"
                launch = read_launch_file(folder / "launch.toml")
                with guarded(source.random() < 0.7):
                    ran = run_launch(module, launch, settings, progress=_few)
                return f"emulated, {'findings' if ran.result.findings else 'clean'}"
            if source.random() < 0.25:
                step = "audit"
                audit_ptx(case.text, seconds=_SECONDS)
            step = "emulate"
            asked = _launch(module, source)
            if source.random() < 0.3:
                asked = replace(asked, dynamic_shared=source.choice((0, 4096)))
            with guarded(source.random() < 0.7):
                result = emulate(module, asked, settings, progress=_few)
        return f"emulated, {_kind(result.findings)}"
    except MlagenError as why:
        assert why.message, "an error without a message"
        if "has not ended" in why.message:
            return "emulated, cut"
        return f"{step}: {type(why).__name__}"


def _kind(findings: Any) -> str:
    return "findings" if findings else "clean"


def judge_text(text: str, end: bool = True) -> str:
    """A text as it is, with the launch that a case gets: "emulated, findings" or "emulated,
    clean"."""
    module = read_ptx(text)
    with guarded(end):
        result = emulate(module, _launch(module, random.Random(3)), Settings(threads=1))
    return f"emulated, {_kind(result.findings)}"

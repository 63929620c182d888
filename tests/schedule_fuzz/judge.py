"""What becomes of one edited schedule: refused, or built and held against both oracles.

Runs in a fork of a process that has loaded everything and prepared the case (`prepare`): what goes
wrong there stays there, and there is a limit of time and of memory.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from corpus import ROOT, Call, Case
from edits import Edited, edited

from mlagen.artifact import Artifact
from mlagen.codegen import build
from mlagen.codegen.schedules import _loaded, load
from mlagen.dsl import ScheduleFunction
from mlagen.errors import MlagenError, ProofError, TemplateError
from mlagen.launch import EmulatedLauncher
from mlagen.mutation.shapes import make_inputs
from mlagen.ops.findings import findings_of
from mlagen.problem import compare
from mlagen.verify import kind_of

MEMORY = 6 << 30  # bytes of address space beyond what the process has
_COMMENT = re.compile(r"\s*(;|//).*$", re.M)
_CODE = re.compile(r"error\[([\w-]+)\]")
_PYTHON = re.compile(r":\d+: (\w*Error|AssertionError|\w*Exception): ")


@dataclasses.dataclass
class Prepared:
    """What the edits of a case share: its source, its unedited text, inputs and oracles."""

    case: Case
    folder: Path
    source: str
    executed: frozenset[int]
    spoken: frozenset[int]  # lines that recorded an operation
    choices: dict[str, tuple[Any, ...]]
    digest: str
    trials: list[tuple[Call, Any, Any]]  # a call, its trial, its oracles


_prepared: dict[str, Prepared] = {}


def prepare(case: Case, folder: Path) -> Prepared:
    """Build the case as it is, once a process; `folder`: where edited files are written."""
    if case.name in _prepared:
        return _prepared[case.name]
    folder.mkdir(parents=True, exist_ok=True)
    for beside in case.path.parent.iterdir():
        link = folder / beside.name
        if beside.name not in (case.path.name, "__pycache__", "__init__.py") and not link.exists():
            link.symlink_to(beside)
    source = case.path.read_text()
    function = _loaded_function(case, folder, source)
    executed: set[int] = set()
    with _lines_of(function, executed):
        schedule = function.build(_problem(case, function), case.knobs)
    choices = {k: tuple(knob.choices) for k, knob in schedule.declared.items()}
    spoken = frozenset(operation.line for operation in _operations(schedule))
    text, artifact = _built(case, function, dict(case.knobs))
    made = Prepared(case, folder, source, frozenset(executed), spoken, choices, _digest(text), [])
    made.trials = [_trial(case, artifact, call) for call in case.calls]
    _prepared[case.name] = made
    return made


def _operations(schedule: Any) -> list[Any]:
    if hasattr(schedule, "operations"):
        return list(schedule.operations)
    parts = ("prologue", "items", "loop", "epilogue")
    return [x for stream in schedule.streams for part in parts for x in getattr(stream, part)]


def _problem(case: Case, function: ScheduleFunction) -> Any:
    return function.problem_type.from_fields(case.problem)  # type: ignore[attr-defined]


def _loaded_function(case: Case, folder: Path, text: str) -> ScheduleFunction:
    """The schedule of a source text, by the way that a user's file takes."""
    path = folder / case.path.name
    path.write_text(text)
    _loaded.clear()
    function = load(f"{path}:{case.function}", case.target)
    if case.solves:
        import mlagen.problem

        function = dataclasses.replace(function, problem_type=getattr(mlagen.problem, case.solves))
    return function


@contextmanager
def _lines_of(function: ScheduleFunction, executed: set[int]) -> Iterator[None]:
    """Adds the lines of the schedule's function that are run inside."""
    code = function.function.__code__

    def local(frame: Any, event: str, argument: Any) -> Any:
        executed.add(frame.f_lineno)
        return local

    def trace(frame: Any, event: str, argument: Any) -> Any:
        return local if frame.f_code is code else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def stripped(text: str) -> str:
    """What is executed of a kernel's text: without comments, names of files and versions."""
    return "\n".join(x for x in _COMMENT.sub("", text).splitlines() if x.strip())


def _digest(text: str) -> str:
    return hashlib.sha256(stripped(text).encode()).hexdigest()[:16]


class _Unchanged(Exception):
    pass


def _built(
    case: Case, function: ScheduleFunction, knobs: dict[str, Any], digest: str = ""
) -> tuple[str, Artifact]:
    """Text and artifact; _Unchanged where the text is that of `digest`, before it is assembled."""
    module = sys.modules["mlagen.codegen.build"]  # the package has a function of that name
    assemble = module.assemble

    def asked(text: str, **named: Any) -> bytes:
        if _digest(text) == digest:
            raise _Unchanged
        return assemble(text, **named)

    with patch.object(module, "assemble", asked):
        artifact = build(function, _problem(case, function), knobs=knobs)
    return artifact.text, artifact


def _trial(case: Case, artifact: Artifact, call: Call) -> tuple[Call, Any, Any]:
    kind = kind_of(artifact)
    if call.tiles is None:
        inputs = kind.inputs(artifact.manifest.problem, data=call.data, seed=0, **call.shape)
    else:
        config = type(kind.inputs(artifact.manifest.problem, data="randn", seed=0).config)
        inputs = make_inputs(
            config.from_fields(artifact.manifest.problem),
            _Shape(call.tiles, call.missing if call.tiles else 0),
        )
    trial = kind.trial(inputs)
    if hasattr(trial, "planned"):
        trial = trial.planned(artifact)
    return call, trial, trial.oracles()


@dataclasses.dataclass(frozen=True)
class _Shape:
    tiles: int
    missing: int


# ---- one edit ------------------------------------------------------------------------------------


def draw(prepared: Prepared, seed: int, kinds: tuple[str, ...] = ()) -> Edited:
    """The edit that a seed stands for."""
    case = prepared.case
    return edited(
        prepared.source, case.function, f"{case.name}:{seed}", target=case.target,
        executed=prepared.executed, spoken=prepared.spoken, knobs=case.knobs, choices=prepared.choices, kinds=kinds,
    )  # fmt: skip


def attempt(case: Case, folder: Path, seed: int, kinds: tuple[str, ...] = ()) -> dict[str, Any]:
    """What becomes of edit `seed` of a case, as plain values. `seed` -1: the case as it is."""
    prepared = prepare(case, folder)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
    if seed < 0:
        change = Edited(prepared.source, dict(case.knobs), ())
    else:
        change = draw(prepared, seed, kinds)
    said = {
        "case": case.name,
        "seed": seed,
        "kind": change.kind if change.edits else "none",
        "edits": [f"{edit.kind}: {edit.text}" for edit in change.edits],
    }
    (folder / "doing").write_text("build")
    started = time.perf_counter()
    try:
        text, artifact = _built(
            case, _loaded_function(case, folder, change.text), dict(change.knobs),
            prepared.digest if seed >= 0 else "",
        )  # fmt: skip
    except _Unchanged:
        return {**said, "outcome": "unchanged", "build": _since(started)}
    except MlagenError as error:
        return {**said, "outcome": "refused", "build": _since(started), "error": code_of(error),
                "message": _short(str(error))}  # fmt: skip
    except MemoryError:
        raise
    except Exception as error:
        return {**said, "outcome": "crash", "build": _since(started), "message": _where(error),
                "error": type(error).__name__}  # fmt: skip
    said |= {"build": _since(started), "text": _digest(text)}
    started = time.perf_counter()
    wrong = _wrong(prepared, artifact)
    said["judge"] = _since(started)
    if wrong:
        return {**said, "outcome": "wrong", "message": wrong}
    return {**said, "outcome": "right"}


def code_of(error: MlagenError) -> str:
    """What refused: the class, with the code of a proof's error or what Python raised."""
    code, raised = _CODE.search(str(error)), _PYTHON.search(str(error))
    name = type(error).__name__
    if isinstance(error, ProofError) and code:
        return f"{name} {code[1]}"
    if isinstance(error, TemplateError) and "assembler" in str(error):
        return f"{name} assembler"
    return f"{name} {raised[1]}" if raised else name


def _wrong(prepared: Prepared, artifact: Artifact) -> str:
    """What the emulator, its sanitizer or an oracle holds against a kernel; nothing: it is right."""
    for call, trial, oracles in prepared.trials:
        (prepared.folder / "doing").write_text(f"run {call}")
        bits: dict[str, bytes] = {}
        for mode in ("latest", "earliest"):
            where = f"{call}, mode {mode}"
            try:
                made, report = trial.run(artifact, EmulatedLauncher(mode=mode, threads=1))
            except MlagenError as error:
                return f"{where}: {type(error).__name__}: {_short(str(error))}"
            outputs = made if isinstance(made, dict) else {"o": made}
            for oracle in oracles:
                found = compare(oracle, outputs[oracle.output])
                if not found.passed:
                    return (f"{where}: {found.failures} of {found.elements} elements are wrong by "
                            f"the {found.oracle} oracle, {found.nans} of them NaN")  # fmt: skip
            findings = findings_of(artifact, report)
            if findings:
                return f"{where}: sanitizer: {_short(findings[0].render())}"
            for name, array in outputs.items():
                raw = np.ascontiguousarray(array).tobytes()
                if bits.setdefault(name, raw) != raw:
                    return f"{where}: other bits than in mode latest"
    return ""


def _since(started: float) -> float:
    return round(time.perf_counter() - started, 3)


def _short(text: str) -> str:
    text = " ".join(text.split()).replace(str(ROOT), ".")
    return text if len(text) <= 300 else text[:297] + "..."


def _where(error: Exception) -> str:
    """An unforeseen exception with the last line of mlagen that it passed."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if "mlagen" in code.co_filename:
            place = f"{Path(code.co_filename).name}:{trace.tb_lineno} {code.co_name}"
        trace = trace.tb_next
    return _short(f"{type(error).__name__}: {error} at {place}")

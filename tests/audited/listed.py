"""kernels.toml: which kernels are audited, where each comes from, and what is known of it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_name("kernels.toml")
TARGETS = ("sm_90a", "sm_100a", "gfx950")


@dataclass(frozen=True)
class Source:
    """A public repository at one commit. `paths`: what is taken of it."""

    name: str
    url: str
    commit: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Listed:
    """A kernel, in one of five kinds.

    An object of a source (`source`, `file`); CUDA C++ that nvcc compiles (`source` and `file`, or
    `unit`, which instantiates what headers declare; `headers`: source/folder); a function of
    Triton's or Gluon's (`source`, `file`, `function`, `compile`); a `case` of tests/compilers; ours
    (`build`: arguments of `mlagen build`).

    `sha256`: of the object or the PTX, "" for ours. `options`: what `mlagen audit` is told of the
    launch. `judged`: rules of errors that the page judges, and found true; `false`: of those that
    it holds to be false, which the audit has yet to unlearn. `reason`: of ours, why the audit
    leaves something of it unproved or unchecked.
    """

    name: str
    target: str
    family: str
    source: str = ""
    file: str = ""
    unit: str = ""
    headers: tuple[str, ...] = ()
    function: str = ""
    compile: dict[str, Any] = field(default_factory=dict)
    case: str = ""
    build: tuple[str, ...] = ()
    sha256: str = ""
    options: tuple[str, ...] = ()
    judged: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    reason: str = ""

    @property
    def kind(self) -> str:
        """object, cuda, triton, case or ours."""
        if self.build:
            return "ours"
        if self.case:
            return "case"
        if self.function:
            return "triton"
        return "object" if self.file.endswith(".co") else "cuda"

    @property
    def from_pypi(self) -> bool:
        """Whether it needs no repository but this one."""
        return self.kind in ("case", "ours")


@dataclass(frozen=True)
class Listing:
    """The file: `tools` are the packages, with versions, that compile what is compiled."""

    tools: tuple[str, ...]
    flags: tuple[str, ...]
    sources: dict[str, Source]
    kernels: tuple[Listed, ...]

    def named(self, parts: tuple[str, ...]) -> tuple[Listed, ...]:
        """Kernels whose name or family has one of the parts; all, where none is given."""
        return tuple(
            one
            for one in self.kernels
            if not parts or any(part in one.name or part in one.family for part in parts)
        )


def read_list(path: Path = LIST) -> Listing:
    """Reads the file. ValueError for what it does not know, names twice or leaves open."""
    told = tomllib.loads(path.read_text())
    sources = {
        name: Source(name, source["url"], source["commit"], tuple(source["paths"]))
        for name, source in told["sources"].items()
    }
    kernels = tuple(_kernel(entry) for entry in told["kernels"])
    names = [kernel.name for kernel in kernels]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{path.name}: two kernels are called {', '.join(sorted(twice))}")
    for kernel in kernels:
        for source in (kernel.source, *(header.partition("/")[0] for header in kernel.headers)):
            if source and source not in sources:
                raise ValueError(f"{path.name}: {kernel.name}: no source {source}")
    tools = told["tools"]
    return Listing(tuple(tools["packages"]), tuple(tools["nvcc_flags"]), sources, kernels)


def _kernel(entry: dict[str, Any]) -> Listed:
    known = {one.name for one in fields(Listed)}
    if unknown := sorted(set(entry) - known):
        raise ValueError(f"{entry.get('name', '?')}: unknown {', '.join(unknown)}")
    told = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    kernel = Listed(**told)
    if kernel.target not in TARGETS:
        raise ValueError(
            f"{kernel.name}: target {kernel.target!r}; {', '.join(TARGETS)} are listed"
        )
    if not (kernel.file or kernel.unit or kernel.case or kernel.build):
        raise ValueError(f"{kernel.name}: neither file, unit, case nor build")
    return kernel

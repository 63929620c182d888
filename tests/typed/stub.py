"""Writes `mlagen/__init__.pyi`: `mlagen.build` as type checkers know it, an overload a kernel.

    python tests/typed/stub.py          # writes it again; the tests compare it with what is written

Fields are those of the kernel's problem class, knobs those that any of its forms declares.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "mlagen" / "__init__.pyi"
sys.path.append(str(ROOT / "tests" / "deleted"))

from schedule_forms import Form, drawn  # noqa: E402

from mlagen.codegen.schedules import load, names  # noqa: E402
from mlagen.errors import MlagenError  # noqa: E402

DRAWN = 20  # problems of each kernel whose knobs are looked at
WIDER = ("variant", "ctas")  # which table is taken
CALLABLES = {
    "MhaProblem": "MhaKernel",
    "MlaProblem": "MlaPrefillKernel",
    "MlaReduceConfig": "MlaReduceKernel",
    "MlaDecodeConfig": "MlaDecodeKernel",
    "MlaSparsePrefillConfig": "MlaSparsePrefillKernel",
    "MlaSparseDecodeConfig": "MlaSparseDecodeKernel",
}
OF_AITER = {"mla_decode_gfx950": "AiterDecodeKernel"}  # with arguments="aiter"
TYPES = {"int": "int", "bool": "bool", "str": "str", "float": "float", "Mask": "Mask | str"}

HEAD = '''"""`mlagen.build` as type checkers know it, written by tests/typed/stub.py."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Required, TypedDict, Unpack, overload

from mlagen.attention.masks import Mask
from mlagen.dsl import Config
from mlagen.families.mla_decode.aiter_kernel import AiterDecodeKernel
from mlagen.launch import Launcher
from mlagen.ops import (
    MhaKernel,
    MlaDecodeKernel,
    MlaPrefillKernel,
    MlaReduceKernel,
    MlaSparseDecodeKernel,
    MlaSparsePrefillKernel,
)

__version__: str
__all__ = ["__version__", "build"]

_Shape = Mapping[str, int | Sequence[int]]
'''
OVERLOAD = """
@overload
def build(
    kernel: {kernel},
    *,
    target: {target} = None,
    knobs: Mapping[str, Any] | None = None,
    templates: str | PathLike[str] | None = None,
    launcher: Launcher | None = None,
    shape: _Shape | None = None,{fields}
) -> {made}: ...
"""


def text() -> str:
    """The whole stub."""
    problems: dict[str, str] = {}
    kernels, overloads = [], []
    for name, knobs in _knobs().items():
        function = load(name)
        problem = function.problem_type.__name__
        if problem not in CALLABLES:
            continue  # it is launched by the kernel that splits its work
        fields = dataclasses.fields(function.problem_type)
        known = {field.name for field in fields}
        problems[problem] = _typed_dict(f"_{problem}", "TypedDict", map(_field, fields))
        kind = "_" + "".join(part.capitalize() for part in name.split("_"))
        own = {knob: what for knob, what in knobs.items() if knob not in known}

        def add(kind: str, made: str, name: str = name, target: str = function.target) -> None:
            more = f"\n    **fields: Unpack[{kind}],"
            overloads.append(
                OVERLOAD.format(
                    kernel=f'Literal["{name}"]', target=f'Literal["{target}"] | None',
                    fields=more, made=made,
                )
            )  # fmt: skip

        if name in OF_AITER:
            base, whose = f"{kind}Knobs", own.pop("arguments") and "arguments"
            kernels.append(_typed_dict(base, f"_{problem}", own.items()))
            kernels.append(
                _typed_dict(f"{kind}Aiter", base, [(whose, 'Required[Literal["aiter"]]')])
            )
            kernels.append(_typed_dict(kind, base, [(whose, 'Literal["mlagen"]')]))
            add(f"{kind}Aiter", OF_AITER[name])
        else:
            kernels.append(_typed_dict(kind, f"_{problem}", own.items()))
        add(kind, CALLABLES[problem])
    # A file of one's own. As text its fields cannot be given one by one: any misspelt field of a
    # shipped kernel would be one of such a file's.
    asked = {"target": "str | None", "made": "Any"}
    path = "PathLike[str] | Config"
    overloads.append(OVERLOAD.format(kernel=path, fields="\n    **fields: Any,", **asked))
    overloads.append(OVERLOAD.format(kernel="str", fields="", **asked))
    return _formatted("".join([HEAD, *problems.values(), *kernels, *overloads]))


def _typed_dict(name: str, base: str, fields: Iterable[tuple[str, str]]) -> str:
    lines = "".join(f"\n    {field}: {kind}" for field, kind in fields)
    return f"\nclass {name}({base}, total=False):{lines or ' ...'}\n"


def _field(field: dataclasses.Field[Any]) -> tuple[str, str]:
    kind = TYPES[field.type if isinstance(field.type, str) else field.type.__name__]
    return field.name, f"Required[{kind}]" if field.default is dataclasses.MISSING else kind


def _knobs() -> dict[str, dict[str, str]]:
    """The types of each kernel's knobs, by name."""
    kinds: dict[str, dict[str, set[str]]] = {name: {} for name in names()}
    for form in drawn(DRAWN, 0):
        for schedule in _schedules(form):
            for name, knob in schedule.declared.items():
                held = kinds[form.kernel].setdefault(name, set())
                held |= {type(choice).__name__ for choice in knob.choices}
                held |= {"float"} if knob.span else set()
    return {
        kernel: {name: " | ".join(sorted(held)) for name, held in sorted(knobs.items())}
        for kernel, knobs in kinds.items()
    }


def _schedules(form: Form) -> Iterator[Any]:
    """What the kernel says for a problem, over all of its tables."""
    try:
        schedule = form.run()[1]
    except MlagenError:
        return
    yield schedule
    for name in WIDER:
        knob = schedule.declared.get(name)
        for choice in knob.choices if knob else ():
            try:
                yield dataclasses.replace(form, knobs={name: choice}).run()[1]
            except MlagenError:
                continue


def _formatted(source: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(STUB), "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    STUB.write_text(text())

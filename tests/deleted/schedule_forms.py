"""Every form of every shipped schedule, the examples, and the kernels that pages write.

A program is what a schedule says: its operations in their order, section by section, and the plain
loop that it declares. What differs in sizes and formats alone is one form here.
"""

from __future__ import annotations

import itertools
import random
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlagen.codegen.build import run_schedule
from mlagen.codegen.schedules import load
from mlagen.dsl import ScheduleFunction
from mlagen.dsl.operation import operations_of
from mlagen.errors import MlagenError
from mlagen.problem.fields import example_of

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "docs"))

from doc_pages import read_page  # noqa: E402

FP8, ROPE = "fp8_e4m3", "fp8_rope_aware"


@dataclass(frozen=True)
class Form:
    """One kernel: a schedule's name or file, its function, its problem's fields, knobs."""

    kernel: str
    target: str
    fields: Mapping[str, Any]
    knobs: Mapping[str, Any]

    def __str__(self) -> str:
        said = {**self.fields, **self.knobs}
        name = self.kernel.rpartition(":")[2]
        return " ".join([name, self.target, *(f"{k}={v}" for k, v in said.items())])

    def function(self) -> ScheduleFunction:
        return load(self.kernel, self.target)

    def run(self) -> Any:
        """(function, schedule, templates)."""
        function = self.function()
        kind = function.problem_type
        problem = kind.from_fields(self.fields) if self.fields else example_of(kind)  # type: ignore[attr-defined]
        return run_schedule(function, problem, knobs=self.knobs)


def _product(**values: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    for chosen in itertools.product(*values.values()):
        yield dict(zip(values, chosen, strict=True))


MASKS = ("null", "causal", "sliding_window_causal[100]", "chunked_causal[100]")
FORMATS = (
    {}, {"cache_dtype": FP8}, {"dtype": FP8, "cache_dtype": FP8},
    {"dtype": FP8, "cache_dtype": FP8, "compute": "fp8"}, {"cache_dtype": ROPE},
    {"dtype": FP8, "cache_dtype": ROPE}, {"dtype": ROPE, "cache_dtype": ROPE},
    {"dtype": FP8, "cache_dtype": ROPE, "compute": "fp8"},
)  # fmt: skip
ROWS = ("bf16", "e4m3", "e4m3_row", "e4m3_block32", "e4m3_block64", "e4m3_block128", "v32",
        "rope_aware", "model1", "v41")  # fmt: skip


def _decode() -> Iterator[dict[str, Any]]:
    for chosen in _product(num_heads=(16, 64, 72), page_size=(1, 16, 64, 128), q_len=(1, 2),
                           mask=MASKS):  # fmt: skip
        yield from ({**chosen, **formats} for formats in FORMATS)


def _sparse_prefill() -> Iterator[dict[str, Any]]:
    for chosen in _product(num_heads=(8, 24, 40, 72), rows=ROWS, dtype=("bf16", FP8),
                           compute=("bf16", "fp8")):  # fmt: skip
        yield {**chosen, "d_qk": 512 if chosen["rows"] in ("model1", "v41") else 576}


def _sparse_decode() -> Iterator[dict[str, Any]]:
    for fields in _sparse_prefill():
        for more in _product(extra=(False, True), causal=(False, True), q_len=(1, 4),
                             shared_list=(False, True)):  # fmt: skip
            yield {**fields, **more}


def _prefill(**more: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    yield from (
        {"num_heads": 2, "num_kv_heads": 1, **x}
        for x in _product(dtype=("bf16", FP8), mask=MASKS, ragged=(False, True),
                          page_size=(0, 1, 16, 64), lse=(False, True), **more)
    )  # fmt: skip


FIELDS: dict[str, Any] = {
    "mha_prefill_v2": lambda: _prefill(depth=(64, 128), sink=(False, True)),
    "mla_prefill_v2": lambda: _prefill(kv_form=("k_and_v", "nope_rope", "latent")),
    "mla_prefill_reduce": lambda: _product(
        num_heads=(3,), depth=(128, 512), lse=(False, True), output_dtype=("bf16", "fp32")
    ),
    **{f"mla_decode_{target}": _decode for target in ("gfx950", "sm90", "sm100")},
    **{
        f"mla_decode_merge_{target}": lambda: _product(num_heads=(3,), sink=(False, True))
        for target in ("gfx950", "sm90", "sm100")
    },
    **{f"mla_sparse_prefill_{target}": _sparse_prefill for target in ("gfx950", "sm90", "sm100")},
    **{f"mla_sparse_decode_{target}": _sparse_decode for target in ("gfx950", "sm90", "sm100")},
}
PAGES = ("first_kernel.md", "write_a_schedule.md")  # those that write a schedule that is built


def examples() -> list[Form]:
    """Each schedule of each example, with the default of its problem."""
    files = sorted((ROOT / "examples").glob("*.py"))
    return [form for file in files for form in _of_file(file)]


def written(folder: Path) -> list[Form]:
    """Each schedule that a page of the documentation writes, in a folder a page."""
    found = []
    for page in PAGES:
        place = folder / Path(page).stem
        for item in read_page((ROOT / "docs" / page).read_text()):
            if item.what == "file":
                path = place / item.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(item.text)
        found += [form for file in sorted(place.glob("*.py")) for form in _of_file(file)]
    return found


def _of_file(file: Path) -> list[Form]:
    names = re.findall(r"^@schedule\(.*target=\"(\w+)\".*\ndef (\w+)", file.read_text(), re.M)
    return [Form(f"{file}:{name}", target, {}, {}) for target, name in names]


def candidates() -> Iterator[Form]:
    """Problems of every shipped schedule, with the default knobs."""
    for kernel, fields in FIELDS.items():
        target = load(kernel).target
        yield from (Form(kernel, target, x, {}) for x in fields())


def program(schedule: Any) -> tuple[Any, ...]:
    """What a schedule says, without sizes."""

    def told(operations: Any) -> tuple[Any, ...]:
        return tuple(
            (op.key, op.tile.offset if op.tile else None, op.domain, op.roles, op.ahead)
            for op in operations
        )

    name = (schedule.name, schedule.target.name, repr(schedule.plain))
    if hasattr(schedule, "streams"):
        return (*name, *((s.role.name, s.step, told(s.prologue), told(s.items), told(s.loop),
                          told(s.epilogue)) for s in schedule.streams))  # fmt: skip
    loop = tuple((c.name, told(operations_of(c.steps))) for c in schedule.loop)
    return (*name, told(schedule.prologue), told(schedule.items), loop, told(schedule.epilogue))


def forms(problems: Iterable[Form]) -> list[Form]:
    """One form of each program of these problems, with each knob at each of its choices, one at a
    time. Problems that their kernel does not have are left out."""
    found: dict[tuple[Any, ...], Form] = {}

    def said(form: Form) -> Any:
        try:
            schedule = form.run()[1]
        except MlagenError:
            return None
        new = program(schedule) not in found
        found.setdefault(program(schedule), form)
        return schedule if new else None

    for form in problems:
        if (schedule := said(form)) is None:
            continue
        for name, knob in schedule.declared.items():
            for choice in knob.choices:
                if str(choice) != str(schedule.knobs.get(name, knob.default)):
                    said(replace(form, knobs={name: choice}))
    return list(found.values())


def drawn(count: int, salt: int) -> list[Form]:
    """So many problems of each shipped schedule that it has, drawn by `salt`."""
    rng = random.Random(salt)
    by_kernel: dict[str, list[Form]] = {}
    for form in candidates():
        by_kernel.setdefault(form.kernel, []).append(form)
    found = []
    for held in by_kernel.values():
        rng.shuffle(held)
        found += list(itertools.islice(filter(_is_had, held), count))
    return found


def _is_had(form: Form) -> bool:
    try:
        form.run()
    except MlagenError:
        return False
    return True

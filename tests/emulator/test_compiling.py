"""How the engine becomes machine code: what its source may say, what it costs, what is kept."""

import importlib
import pickle
import re

import numpy as np
import pytest
from numba.core import callconv
from numba.core.registry import cpu_target

from mlagen.emulator.gfx950.engine import run
from mlagen.emulator.native import starting
from mlagen.emulator.native.compiling import callable_from_python, compiled, entry, spliced
from mlagen.emulator.native.lowering import LoweredModule
from mlagen.emulator.native.raw import bits_of, f32_of, float32, int64, uint32, uint64

FACTOR = 3


@spliced
def _twice(x: int) -> int:
    return 2 * x


@compiled
def _pair(x: int, y: int) -> tuple[int, int]:
    return y, x


@compiled
def _numbers(x: int, y: int) -> int:
    small, large = _pair(max(x, y), min(x, y))
    total = -7 // 2 + x % 5 + y // FACTOR
    small, large = large, small
    total += _twice(small) - abs(large)
    if not x or (x > 3 and y & 1):
        total ^= 0x55
    elif x == 2:
        return ~total
    return total if small != large else total << 2


@compiled
def _loops(x: int, y: int) -> int:
    total = 0
    for i in range(x):
        if i == 2:
            continue
        if i == y:
            break
        total += i
    for i in range(y, 0, -2):
        total = 10 * total + i
    while True:
        total += 1
        if total % 7 == 0:
            break
    return 100 * total + i


@compiled
def _kinds(x: int, y: int) -> int:
    if x > y:
        value = uint64(x)
        return int64(value >> uint64(60))
    value = float32(x) * float32(0.1)
    value = float32(value + f32_of(uint32(y)))
    found = value > float32(1.0)
    if x == 1:
        found = 7
    return int64(bits_of(value)) + found


@compiled
def _mixed(x: int, y: int) -> int:
    value = x
    if y:
        value = float32(x)
    return int64(value)


@compiled
def _written(x: int, y: int) -> int:
    return sum([x, y])


@compiled
def _keyword(x: int, y: int) -> int:
    return _twice(x=y)


def _call(part):
    enter = entry(part)
    return callable_from_python(lambda x, y: enter(x, y), kept=False)


@pytest.mark.parametrize("part", [_numbers, _loops])
def test_compiled_code_does_what_python_does(part):
    call = _call(part)
    names = {"_twice": _twice.function, "_pair": _pair.function, "FACTOR": FACTOR}
    python = type(part.function)(part.function.__code__, {**globals(), **names})
    for x in range(1, 9):
        for y in range(1, 9):
            assert call(x, y) == python(x, y), (x, y)


def test_names_stand_for_several_types():
    call = _call(_kinds)
    assert call(-1, -2) == 15  # as an unsigned number
    for x, y in ((0, 0x3F800000), (1, 0x40000000), (5, 0x3F000000)):
        value = np.float32(np.float32(x) * np.float32(0.1) + np.uint32(y).view(np.float32))
        found = 7 if x == 1 else int(value > 1)
        assert call(x, y) == int(value.view(np.uint32)) + found


@pytest.mark.parametrize(
    ("part", "line", "why"),
    [
        (_mixed, "value: ", "value is of several types here"),
        (_written, "[x, y]", "no such words"),
        (_keyword, "_twice(x=y)", "by position"),
    ],
)
def test_what_cannot_be_lowered_is_named_with_its_line(part, line, why):
    with pytest.raises(TypeError) as refused:
        _call(part)(1, 2)
    text = str(refused.value)
    place = re.search(r"test_compiling\.py:(\d+): ", text)
    assert line in text and why in text and place
    assert 1 <= int(place[1]) - part.function.__code__.co_firstlineno <= 5


def test_the_engine_stays_cheap_to_compile():
    """Work before LLVM begins, in numbers that no busy machine changes."""
    target = cpu_target.target_context.subtarget()
    target.error_model = callconv.create_error_model("numpy", target)
    target.refresh()
    library = target.codegen().create_library("budget")
    program = LoweredModule(library.create_ir_module("budget"), target, cpu_target.typing_context)
    with target.push_code_library(library):
        program.lower(run, starting.SIGNATURE)
    functions = [f for f in program.module.functions if not f.is_declaration]
    instructions = sum(len(b.instructions) for f in functions for b in f.blocks)
    assert program.parts == len(functions)
    names = [function.name for function in functions]
    assert {"engine.step", "vector.compare", "matrix.multiply"} <= set(names)
    # One type for each argument, so one function for each: numba's way came to 216 of them.
    assert len(functions) <= 230
    assert instructions <= 32_000


# ---- what is kept


class _Dispatcher:
    """What `ready` asks of numba's dispatcher, without a compiler."""

    def __init__(self, answer, fails=None, compiled_first=False):
        self.overloads, self.emptied = {}, False
        self._answer, self._fails, self._compiled_first = answer, fails, compiled_first

    def compile(self, signature):
        if self._fails is None or self._compiled_first:
            self.overloads[signature] = True
        if self._fails is not None:
            raise self._fails

    def recompile(self):
        assert not self.overloads
        self.emptied = True

    def __call__(self, context, budget):
        assert self.overloads and (context, budget) == (0, -1)
        return self._answer


def _ready(caplog, *kept, stamp=5):
    """What `ready` settles on when numba's cache gives one of `kept` after the other: its place
    among them, or None for one that is not kept; and what is said."""
    anew, given = _Dispatcher(stamp), list(kept)

    def make(asked, keep):
        assert asked == stamp
        if not keep:
            return anew
        first = given.pop(0)
        if isinstance(first, Exception):
            raise first
        return first

    with caplog.at_level("INFO", starting.LOG.name):
        made = starting.ready(make, stamp)
    assert made.overloads
    if made is anew:
        return None, caplog.text
    assert made.emptied == (made is not kept[0])
    return kept.index(made), caplog.text


def test_kept_code_is_taken(caplog):
    assert _ready(caplog, _Dispatcher(5)) == (0, "")


def test_kept_code_of_other_sources_is_replaced(caplog):
    number, text = _ready(caplog, _Dispatcher(4), _Dispatcher(5))
    assert number == 1 and "of other sources" in text


@pytest.mark.parametrize("error", [EOFError(), pickle.UnpicklingError("cut"), OSError(5, "bad")])
def test_a_broken_file_costs_a_compilation_and_is_replaced(caplog, error):
    number, text = _ready(caplog, _Dispatcher(5, error), _Dispatcher(5))
    assert number == 1 and "cannot be used" in text


def test_no_folder_to_keep_it_in(caplog):
    error = RuntimeError("cannot cache function: no locator available")
    number, text = _ready(caplog, error, error)
    assert number is None and text.count("NUMBA_CACHE_DIR") == 1


def test_a_full_disk_costs_nothing_now(caplog):
    full = _Dispatcher(5, OSError(28, "No space left on device"), compiled_first=True)
    number, text = _ready(caplog, full)
    assert number == 0 and "No space left" in text


def test_an_error_of_the_source_is_no_matter_of_the_cache(caplog):
    with pytest.raises(TypeError, match="several types"):
        _ready(caplog, _Dispatcher(5, TypeError("several types")))


def _write(folder):
    """A function with numba's cache, in a file of its own."""
    (folder / "kept_function.py").write_text(
        "from mlagen.emulator.native.compiling import callable_from_python\n"
        "def make(stamp, kept):\n"
        "    def f(context, budget):\n"
        "        return stamp\n"
        "    return callable_from_python(f, kept=kept)\n"
    )


def test_numbas_files_are_kept_cut_short_and_replaced(tmp_path, monkeypatch, caplog):
    _write(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / "cache"))
    module = importlib.import_module("kept_function")

    def hits():
        made = starting.ready(module.make, 5)
        assert made(0, -1) == 5
        return sum(made.stats.cache_hits.values())

    with caplog.at_level("INFO", starting.LOG.name):
        assert (hits(), hits()) == (0, 1) and not caplog.text
        (data,) = (tmp_path / "cache").rglob("*.nbc")
        data.write_bytes(data.read_bytes()[:100])
        assert hits() == 0 and "cannot be used" in caplog.text
        assert hits() == 1  # mended

"""Finds schedules: the ones that ship with mlagen, and a user's own file."""

from __future__ import annotations

import difflib
import functools
import importlib.util
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

from mlagen.codegen.target import schedule_of
from mlagen.disk import exists, read_file
from mlagen.dsl import Knob, ScheduleFunction
from mlagen.dsl.function import ScheduleBase, last_line
from mlagen.errors import ConfigError, MissingError, MlagenError, ScheduleError
from mlagen.legal_names import require_name
from mlagen.problem.fields import example_of
from mlagen.targets.registry import TARGETS
from mlagen.untrusted import Spent, words


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """What `mlagen list` shows of a schedule. `table`: the file whose table a problem takes, the
    schedule's own or one that it passes the problem on to; `knobs`: those of that problem, and
    their `values`."""

    name: str
    target: str
    problem_type: type
    doc: str
    knobs: tuple[Knob, ...]
    values: Mapping[str, Any]
    table: str


def available() -> list[ScheduleInfo]:
    """The shipped schedules, by name."""
    return [describe(load(name)) for name in names()]


def names() -> list[str]:
    """Names of the shipped schedules."""
    return sorted(_modules())


_SCHEDULE = re.compile(r"^@schedule\([^@]*?\ndef (\w+)\(", re.M)


@functools.cache
def _modules() -> dict[str, str]:
    """The module of each shipped schedule. One may hold a schedule a target."""
    files = (x for x in resources.files("mlagen.schedules").iterdir() if x.name.endswith(".py"))
    return {
        kernel: file.name.removesuffix(".py")
        for file in files
        for kernel in _SCHEDULE.findall(file.read_text())
    }


def load(name_or_path: str, target: str | None = None, *, tables: bool = False) -> ScheduleFunction:
    """A shipped schedule by name, or the one in a user's file (`PATH.py` or `PATH.py:NAME`). A file
    may hold one schedule a target: then `target` picks, and the first is the default. `tables`:
    also one that takes more than a problem, and cannot be built by itself; else ConfigError."""
    if re.search(r"\.py(:\w+)?$", name_or_path):
        path, _, wanted = name_or_path.partition(".py")
        found = _from_file(Path(path + ".py"), wanted.lstrip(":"), target)
        if found.takes and not tables:
            raise ConfigError(
                f"{found.name} is a table that other schedules have: beside the problem it takes "
                f"{', '.join(found.takes)}",
                hint="build a schedule that calls it; mlagen list names those of mlagen",
            )
        return found
    modules = _modules()
    if name_or_path not in modules:
        near = difflib.get_close_matches(name_or_path, names(), 1)
        raise ConfigError(
            f"no schedule is named {name_or_path!r}"
            + (f", did you mean {near[0]!r}?" if near else ""),
            hint=f"schedules: {', '.join(names())}; a file of your own is given as PATH.py",
        )
    module = modules[name_or_path]
    shipped = importlib.import_module(f"mlagen.schedules.{module}")
    return _pick(shipped, name_or_path, target, f"schedules/{module}.py")


def require_target(kernel: str, asked: str | None, has: str) -> None:
    """Raises ConfigError unless a kernel that `has` a target is asked for that one, or for any."""
    if asked is None or asked == has:
        return
    require_name("target", asked, TARGETS)
    raise ConfigError(f"{kernel} is for {has}, not for {asked}", hint="leave the target out")


def describe(function: ScheduleFunction) -> ScheduleInfo:
    """What a schedule function is; its knobs are those that it declares on the example of its
    problem type. Raises what the schedule refuses."""
    return info_of(function, schedule_of(function, example_of(function.problem_type), {}))


def info_of(function: ScheduleFunction, schedule: ScheduleBase) -> ScheduleInfo:
    """The same of a schedule function that has run: which knobs there are hangs on the problem and
    on other knobs."""
    return ScheduleInfo(
        function.name,
        function.target,
        function.problem_type,
        function.doc,
        tuple(schedule.declared.values()),
        schedule.knobs,
        schedule.file,
    )


# A user's file is executed once for its content, so that its problem class stays one class.
_loaded: dict[tuple[Path, bytes], ModuleType] = {}


def _from_file(path: Path, wanted: str, target: str | None) -> ScheduleFunction:
    if not exists(path) or path.is_dir():
        raise MissingError(f"schedule file {path} does not exist")
    path = path.resolve()
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"the name of schedule file {str(path)!a} is no UTF-8, which manifests are",
            hint="give the file another name",
        ) from None
    key = path, read_file(path)
    if key not in _loaded:
        _loaded[key] = _execute(path)
    return _pick(_loaded[key], wanted, target, str(path))


def _execute(path: Path) -> ModuleType:
    """Import the file as a module. Modules that lie beside it can be imported by it."""
    name = f"mlagen_user_schedule_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ScheduleError(f"{path} cannot be read as a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _forget_neighbours_elsewhere(path.parent)
    before = set(sys.modules)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except (MlagenError, KeyboardInterrupt, Spent):
        raise
    except SyntaxError as error:  # of this file, or of a module that it imports
        line = f":{error.lineno}" if error.lineno else ""
        where = f"{error.filename or path}{line}"
        raise ScheduleError(f"{where}: {type(error).__name__}: {error.msg}") from error
    except BaseException as error:  # a user's file may raise anything, and exit: name it
        _, number = last_line(error, lambda file: file == str(path))
        raise ScheduleError(f"{path}:{number}: {words(error)}") from error
    finally:
        sys.path.remove(str(path.parent))
        _neighbours.update(dict.fromkeys(set(sys.modules) - before, path.parent))
    return module


_neighbours: dict[str, Path] = {}  # modules that schedule files imported: the file's folder


def _forget_neighbours_elsewhere(folder: Path) -> None:
    """Let a file import its own neighbours where one in another folder had some of these names.
    Whoever imported those keeps them."""
    for name, owner in list(_neighbours.items()):
        file = getattr(sys.modules.get(name), "__file__", None)
        if owner != folder and file is not None and owner in Path(file).resolve().parents:
            del sys.modules[name], _neighbours[name]


def _pick(module: ModuleType, wanted: str, target: str | None, where: str) -> ScheduleFunction:
    found = {
        value.name: value for value in vars(module).values() if isinstance(value, ScheduleFunction)
    }
    if wanted and wanted in found:
        return found[wanted]
    # What it only imports, to hand problems on to, is not what the file is for.
    own = {name: value for name, value in found.items() if value.source == module.__file__}
    found = own or found
    if not wanted and len(found) == 1:
        return next(iter(found.values()))
    fitting = [value for value in found.values() if value.target == target]
    if not wanted and len(fitting) == 1:
        return fitting[0]
    targets = {value.target for value in found.values()}
    if not wanted and target is None and found and len(targets) == len(found):
        return next(iter(found.values()))  # one a target: the first is the file's own default
    if not found:
        raise ScheduleError(f"{where} holds no @schedule function")
    if not wanted and target is not None and not fitting:
        raise ConfigError(
            f"{where} has no schedule for {target!r}",
            hint=f"it has for {', '.join(sorted(targets))}",
        )
    raise ScheduleError(
        f"{where} holds {len(found)} schedules"
        + (f", none named {wanted!r}" if wanted else "")
        + (f", {len(fitting)} of them for {target}" if target and not wanted else ""),
        hint="name one: PATH.py:NAME, of "
        + ", ".join(f"{name} ({found[name].target})" for name in sorted(found)),
    )

"""The launch file: TOML to values, every key known, every value of the right kind."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from mlagen.disk import read_file
from mlagen.emulator.buffer import Triple
from mlagen.emulator.launching.scalars import check_dtype
from mlagen.errors import ConfigError, MissingError

_LONGEST_FILE = 1 << 22  # characters
_MOST_DOTS = 64  # in a line
_DEEPEST = 4  # tables and lists: [[arguments]], [buffers.NAME], shape
_MOST_ENTRIES = 1024  # arguments, buffers, and tensor maps


class BufferSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[buffers.NAME]`: memory behind pointers.

    Its contents come from `file` (.npy, or .bin with `dtype`), or from `fill`: a number, or
    "poison" (NaN in every float format; the default). `shape` and `dtype`, or `bytes`, give its
    size without a file. `output`: the .npy file to write after the run. `guard`: bytes before and
    after it that may be read, hold poison, and are checked for writes. `address`: simulated.
    `late`, of PTX: the kernel before writes it, so no access before `griddepcontrol.wait`.
    """

    file: str | None = None
    dtype: str | None = None
    shape: list[int] | None = None
    bytes: int | None = None
    fill: int | float | str = "poison"
    output: str | None = None
    access: Literal["read", "write", "readwrite"] | None = None
    guard: int = 0
    address: int | None = None
    late: bool = False


class ArgumentSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[[arguments]]`: a scalar (`type` and `value`), the address of a buffer, or a tensor map.

    Without `offset` the place is that of the argument called `name` in the object's metadata. For
    PTX `name` is a parameter's, and `offset` counts from its begin, or without a name from that of
    the first one. `buffer_offset`: bytes added to the buffer's address.
    """

    offset: int | None = None
    name: str | None = None
    type: str | None = None
    value: int | float | None = None
    buffer: str | None = None
    buffer_offset: int = 0
    tensor_map: str | None = None

    @property
    def label(self) -> str:
        named = f" ({self.name})" if self.name else ""
        return f"argument {self.name}" if self.offset is None else f"offset {self.offset}{named}"


class TiledTensorSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[[tensor_maps]]`: a buffer as a tensor, in the words of cuTensorMapEncodeTiled; see
    `mlagen.emulator.TensorMap`. Arguments pass it by its `name`."""

    name: str
    buffer: str
    dtype: str
    dims: tuple[int, ...]
    box: tuple[int, ...]
    strides: tuple[int, ...] = ()
    element_strides: tuple[int, ...] = ()
    interleave: str = "none"
    swizzle: str = "none"
    l2: str = "none"
    fill: str = "zeros"
    buffer_offset: int = 0


class LaunchFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A launch as written. `folder`: what relative paths in it are relative to. `dynamic_lds` is of
    gfx950 code; `cluster`, `dynamic_shared` and `tensor_maps` are of PTX."""

    grid: Triple
    block: Triple
    kernel: str | None = None
    dynamic_lds: int = 0
    cluster: Triple | None = None
    dynamic_shared: int = 0
    workgroups: list[Triple] | None = None
    allow_unset: bool = False
    arguments: list[ArgumentSpec] = []
    buffers: dict[str, BufferSpec] = {}
    tensor_maps: list[TiledTensorSpec] = []
    folder: str = "."


def read_launch_file(path: str | Path) -> LaunchFile:
    """Read and check a launch file. MissingError when it is not there, ConfigError for its text."""
    path = Path(path)
    try:
        text = read_file(path, limit=4 * _LONGEST_FILE, what=f"launch file {path}").decode()
    except UnicodeDecodeError as why:
        raise MissingError(f"launch file {path} cannot be read: {why}") from None
    return parse_launch(text, folder=path.parent, name=str(path))


def parse_launch(text: str, *, folder: str | Path = ".", name: str = "launch file") -> LaunchFile:
    """A launch from TOML text; `folder` is what its paths are relative to."""
    if len(text) > _LONGEST_FILE:
        raise ConfigError(f"{name} is longer than {_LONGEST_FILE} characters")
    if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
        # The time that tomllib takes grows with the square of a key's parts.
        raise ConfigError(f"{name} has a line with over {_MOST_DOTS} dots")
    try:
        root = tomllib.loads(text)
    except ValueError as why:  # TOMLDecodeError, and numbers of thousands of digits
        raise ConfigError(f"{name} is no TOML: {why}") from None
    except RecursionError:
        raise ConfigError(f"{name} is nested too deeply") from None
    _check_values(name, root)
    if "folder" in root:
        raise ConfigError(f"{name}: unknown key 'folder'")
    _check_keys(name, "the file", root, LaunchFile)
    tables = [("buffers", f"buffers.{n}", v) for n, v in _items(root.get("buffers"))]
    for key in ("arguments", "tensor_maps"):
        rows = root.get(key, [])
        if isinstance(rows, list):
            tables += [(key, f"{key}[{n}]", v) for n, v in enumerate(rows)]
    for kind, place, value in tables:
        if isinstance(value, dict):
            _check_keys(name, place, value, _TABLES[kind])
    for key in ("grid", "block"):
        if key not in root:
            raise ConfigError(f"{name}: {key} is missing", hint=f"{key} = [x, y, z]")
    try:
        launch = msgspec.convert({**root, "folder": str(folder)}, LaunchFile)
    except msgspec.ValidationError as why:
        raise ConfigError(f"{name}: {why}") from None
    for number, argument in enumerate(launch.arguments):
        _check_argument(f"{name}: arguments[{number}]", argument, launch)
    for label, buffer in launch.buffers.items():
        _check_buffer(f"{name}: buffers.{label}", buffer)
    _check_maps(name, launch)
    return launch


def _check_values(name: str, root: dict[str, Any]) -> None:
    """Numbers of at most 64 bits, lists and tables of bounded length and depth."""
    work: list[tuple[Any, int]] = [(root, 0)]
    while work:
        value, depth = work.pop()
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
            raise ConfigError(f"{name} has a number of more than 64 bits")
        if isinstance(value, dict | list) and depth > _DEEPEST:
            raise ConfigError(f"{name} is nested over {_DEEPEST} deep")
        inner = value.values() if isinstance(value, dict) else value
        if isinstance(value, dict | list):
            work += [(item, depth + 1) for item in inner]
    for key in ("arguments", "buffers", "tensor_maps"):
        count = len(root[key]) if isinstance(root.get(key), dict | list) else 0
        if count > _MOST_ENTRIES:
            raise ConfigError(f"{name} has {count} {key}; at most {_MOST_ENTRIES} are taken")


def _items(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _check_keys(name: str, place: str, table: dict[str, Any], kind: type[msgspec.Struct]) -> None:
    known = [key for key in kind.__struct_fields__ if key != "folder"]
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ConfigError(
                f"{name}: unknown key {key!r} in {place}", hint=f"{hint}known: {', '.join(known)}"
            )


def _check_argument(place: str, argument: ArgumentSpec, launch: LaunchFile) -> None:
    """Either a scalar or a buffer, somewhere; the numbers are checked where they are encoded."""
    if argument.offset is None and argument.name is None:
        raise ConfigError(f"{place} has neither offset nor name")
    if argument.offset is not None and argument.offset < 0:
        raise ConfigError(f"{place}: offset {argument.offset} is negative")
    if argument.tensor_map is not None:
        if argument.value is not None or argument.type is not None or argument.buffer is not None:
            raise ConfigError(
                f"{place} has a tensor map and more",
                hint="tensor_map, or buffer, or type and value",
            )
        known = [made.name for made in launch.tensor_maps]
        if argument.tensor_map not in known:
            raise ConfigError(
                f"{place}: there is no tensor map {argument.tensor_map!r}",
                hint="tensor maps: " + (", ".join(known) or "none; add [[tensor_maps]]"),
            )
        return
    if argument.buffer is not None:
        if argument.value is not None or argument.type is not None:
            raise ConfigError(
                f"{place} has both a buffer and a value", hint="buffer, or type and value"
            )
        if argument.buffer not in launch.buffers:
            raise ConfigError(
                f"{place}: there is no buffer {argument.buffer!r}",
                hint="buffers: " + (", ".join(launch.buffers) or "none; add [buffers.NAME]"),
            )
        return
    if argument.buffer_offset:
        raise ConfigError(f"{place} has a buffer_offset without a buffer")
    if argument.value is None or argument.type is None:
        missing = "value" if argument.value is None else "type"
        raise ConfigError(f"{place} has no {missing}", hint="a buffer, or type and value")


def _check_maps(name: str, launch: LaunchFile) -> None:
    """Names that exist, each once; numbers are checked when the map is made."""
    passed = {argument.tensor_map for argument in launch.arguments}
    taken: set[str] = set()
    for number, made in enumerate(launch.tensor_maps):
        place = f"{name}: tensor_maps[{number}] ({made.name})"
        if made.name in taken:
            raise ConfigError(f"{place}: there is another one of this name")
        taken.add(made.name)
        if made.name not in passed:
            raise ConfigError(
                f"{place} is passed to no argument", hint=f'tensor_map = "{made.name}" in one'
            )
        if made.buffer not in launch.buffers:
            raise ConfigError(
                f"{place}: there is no buffer {made.buffer!r}",
                hint="buffers: " + (", ".join(launch.buffers) or "none; add [buffers.NAME]"),
            )


_TABLES: dict[str, type[msgspec.Struct]] = {
    "buffers": BufferSpec, "arguments": ArgumentSpec, "tensor_maps": TiledTensorSpec,
}  # fmt: skip


def _check_buffer(place: str, buffer: BufferSpec) -> None:
    if buffer.dtype is not None:
        check_dtype(place, buffer.dtype)
    if buffer.file is None and buffer.bytes is None and buffer.shape is None:
        raise ConfigError(f"{place} has no size", hint="file, or shape and dtype, or bytes")
    if buffer.bytes is not None and (buffer.file is not None or buffer.shape is not None):
        raise ConfigError(f"{place} has bytes beside a file or a shape", hint="one of them")
    if buffer.bytes is not None and buffer.bytes < 0:
        raise ConfigError(f"{place}: bytes {buffer.bytes} is negative")
    if buffer.shape is not None and min(buffer.shape, default=0) < 0:
        raise ConfigError(f"{place}: shape {buffer.shape} has a negative size")
    if buffer.file is None and buffer.shape is not None and buffer.dtype is None:
        raise ConfigError(f"{place} has a shape but no dtype")
    if buffer.file is not None and buffer.fill != "poison":
        raise ConfigError(f"{place} has both a file and a fill", hint="one of them")
    if isinstance(buffer.fill, str) and buffer.fill != "poison":
        raise ConfigError(f'{place}: fill is {buffer.fill!r}; it is a number or "poison"')
    if buffer.guard < 0 or buffer.guard % 16:
        raise ConfigError(f"{place}: guard {buffer.guard} is no multiple of 16 from 0 on")
    if buffer.output is not None and not buffer.output.endswith(".npy"):
        raise ConfigError(f"{place}: output {buffer.output!r} does not end in .npy")
    if buffer.output is not None and buffer.access == "read":
        raise ConfigError(f'{place} has an output but access "read"', hint='"write", "readwrite"')

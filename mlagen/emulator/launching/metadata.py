"""Arguments of a launch file against the metadata of a code object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlagen.binary import ArgumentInfo, KernelCode
from mlagen.emulator.launching.launch_file import ArgumentSpec, LaunchFile
from mlagen.emulator.launching.scalars import DTYPES, SCALARS, scalar
from mlagen.emulator.launching.segment import POINTER_BYTES, holds_pointer, is_filler, is_pointer
from mlagen.errors import ConfigError

_LONGEST = 1 << 16  # bytes of arguments, where the object does not say


@dataclass(frozen=True)
class Placed:
    """Arguments with their byte offsets: those that are `passed`, and those `beyond` the segment,
    which the runtime does not pass. `unset`: declared arguments that nothing sets, in words."""

    passed: tuple[tuple[int, ArgumentSpec], ...]
    beyond: tuple[tuple[int, ArgumentSpec], ...]
    unset: tuple[str, ...]


def placed(kernel: KernelCode, launch: LaunchFile) -> Placed:
    """The file's arguments for a kernel. ConfigError for what it cannot be passed."""
    for key, asked in (("cluster", launch.cluster), ("dynamic_shared", launch.dynamic_shared),
                       ("tensor_maps", launch.tensor_maps)):  # fmt: skip
        if asked:
            raise ConfigError(f"the launch file has {key}, which is of PTX; this is gfx950 code")
    if launch.dynamic_lds < 0:
        raise ConfigError(f"dynamic_lds is {launch.dynamic_lds}; it is a number of bytes from 0 on")
    every = _placed(kernel, launch)
    segment = kernel.kernarg_bytes or _LONGEST
    passed = tuple((offset, spec) for offset, spec in every if offset < segment)
    beyond = tuple((offset, spec) for offset, spec in every if offset >= segment)
    return Placed(passed, beyond, _check_against_metadata(kernel, launch, passed))


def _placed(kernel: KernelCode, launch: LaunchFile) -> list[tuple[int, ArgumentSpec]]:
    """Arguments with their byte offsets, none over another, none partly outside the segment."""
    result = []
    for spec in launch.arguments:
        offset = spec.offset if spec.offset is not None else _named(kernel, spec.name or "")
        if spec.type is not None and spec.value is not None:
            scalar(spec.label, spec.type, spec.value)  # a wrong value before a wrong size
        result.append((offset, spec))
    limit = kernel.kernarg_bytes or _LONGEST
    ends: list[tuple[int, int, ArgumentSpec]] = []
    for offset, spec in result:
        end = offset + _size(spec)
        if end > limit and (offset < limit or end > _LONGEST):
            raise ConfigError(
                f"{spec.label}: bytes {offset}..{end - 1} lie outside the kernel's argument "
                f"segment of {limit} bytes"
            )
        for first, last, other in ends:
            if offset < last and first < end:
                raise ConfigError(
                    f"{spec.label} (bytes {offset}..{end - 1}) overlaps {other.label} (bytes "
                    f"{first}..{last - 1})"
                )
        ends.append((offset, end, spec))
    return result


def _size(spec: ArgumentSpec) -> int:
    if spec.buffer is not None:
        return POINTER_BYTES
    return DTYPES[spec.type or ""].itemsize


def _named(kernel: KernelCode, name: str) -> int:
    declared = kernel.info.arguments if kernel.info else ()
    found = [argument.offset for argument in declared if argument.name == name]
    if len(found) == 1:
        return found[0]
    if not declared:
        raise ConfigError(f"argument {name} has no offset, and the object declares no arguments")
    known = ", ".join(dict.fromkeys(a.name for a in declared if not is_filler(a)))
    count = "no argument" if not found else f"{len(found)} arguments"
    raise ConfigError(f"kernel {kernel.name} has {count} called {name}", hint=f"it has: {known}")


def _check_against_metadata(
    kernel: KernelCode, launch: LaunchFile, placed: Sequence[tuple[int, ArgumentSpec]]
) -> tuple[str, ...]:
    """Each argument lies in one that the metadata declares; the names of those left unset."""
    declared = kernel.info.arguments if kernel.info else ()
    if not declared:
        return ()
    covered: set[int] = set()
    for offset, spec in placed:
        size = _size(spec)
        covered.update(range(offset, offset + size))
        home = next((a for a in declared if a.offset <= offset < a.offset + a.size), None)
        address = spec.buffer is not None or spec.type in ("u64", "i64")
        room = home is not None and offset + size <= home.offset + home.size
        if home is not None and offset == home.offset and not room:
            passed = spec.buffer is not None or (address and is_pointer(declared, home))
            room = passed and holds_pointer(declared, home)
        if not room:
            _refuse_place(kernel, spec, offset, size, home)
        pointer = home is not None and home.kind == "global_buffer"
        if pointer and not address:
            assert home is not None
            raise ConfigError(
                f"{spec.label}: {home.name} is a pointer, not a {spec.type}",
                hint="buffer = NAME, or type u64 for an address",
            )
    unset = tuple(
        f"{a.name} (offset {a.offset}, {a.size} bytes)"
        for a in declared
        if not is_filler(a) and not covered.issuperset(range(a.offset, a.offset + a.size))
    )
    if unset and not launch.allow_unset:
        raise ConfigError(
            f"arguments of kernel {kernel.name} that the launch file does not set: "
            + ", ".join(unset),
            hint="set them, or allow_unset = true leaves 0x7f in their bytes",
        )
    return unset


def _refuse_place(
    kernel: KernelCode, spec: ArgumentSpec, offset: int, size: int, home: ArgumentInfo | None
) -> None:
    if home is None:
        raise ConfigError(
            f"{spec.label}: kernel {kernel.name} declares no argument at byte {offset}"
        )
    room = home.offset + home.size - offset
    fits = [name for name in SCALARS if DTYPES[name].itemsize <= room]
    raise ConfigError(
        f"{spec.label}: {size} bytes at {offset}, but {home.name} has {home.size} bytes at "
        f"{home.offset}",
        hint="types that fit: " + ", ".join(fits),
    )

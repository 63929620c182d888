"""Large buffers are not copied: the kernel works on the caller's arrays, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scale_kernel import scale_kernel

from mlagen import room
from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate
from mlagen.emulator.gfx950 import machine, memory
from mlagen.errors import ConfigError

COUNT = (memory._LARGE >> 2) + 128  # numbers, a few more than the least that are not copied
GROUPS = COUNT // 64
CHOSEN = ((0, 0, 0), (GROUPS // 2, 0, 0), (GROUPS - 1, 0, 0))


def placed(values: np.ndarray) -> np.ndarray:
    """The numbers where malloc puts a large array: 16 bytes behind a page's beginning. Where a long
    process has freed as much before, malloc takes it again, anywhere in a page."""
    space = np.zeros(COUNT + 2048, np.float32)
    first = -(space.ctypes.data // 4) % 1024 + 4
    space[first : first + COUNT] = values
    return space[first : first + COUNT]


def run(x: np.ndarray, out: np.ndarray, monkeypatch: Any, **settings: Any) -> tuple[Any, Any]:
    seen: list[memory.BufferArena] = []

    def watched(*arguments: Any, **options: Any) -> memory.BufferArena:
        seen.append(memory.build_memory(*arguments, **options))
        return seen[-1]

    monkeypatch.setattr(machine, "build_memory", watched)
    arguments = [
        Argument(0, Buffer("x", x, "read")),
        Argument(8, Buffer("y", out)),
        Argument(16, np.float32(2.5)),
        Argument(24, np.uint64(0)),
    ]
    launch = Launch((GROUPS, 1, 1), (64, 1, 1), arguments)
    result = emulate(scale_kernel(), launch, Settings(workgroups=CHOSEN, **settings))
    return result, seen[0]


@pytest.mark.parametrize("shared", [True, False])
def test_in_place_or_copied(monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    if not shared:
        monkeypatch.setattr(memory, "_LARGE", 1 << 40)
    x, out = placed(np.arange(COUNT)), placed(np.full(COUNT, -1))
    x.setflags(write=False)
    result, held = run(x, out, monkeypatch)
    assert not result.findings
    assert [np.may_share_memory(a, b) for a, b in zip(held.held, (x, out), strict=False)] == [
        shared,
        shared,
    ]
    assert held.arena.size < 4096 or not shared
    lanes = np.concatenate([np.arange(64) + 64 * group for group, _, _ in CHOSEN])
    wanted = np.full(COUNT, -1, np.float32)
    wanted[lanes] = 2.5 * x[lanes]
    assert np.array_equal(out, wanted)


def test_an_access_outside_is_found_and_stays_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    x, whole = placed(np.ones(COUNT)), placed(np.full(COUNT, -1))
    out = whole[:-64]  # what the last workgroup writes lies outside
    result, held = run(x, out, monkeypatch)
    assert np.may_share_memory(held.held[1], whole)
    assert {finding.kind for finding in result.findings} == {"global-bounds"}
    assert (whole[-64:] == -1).all() and "buffer y" in str(result.findings[0])


@pytest.mark.parametrize("end", ["page", "odd"])
def test_arrays_that_lie_badly_are_copied(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """At the end of a page a load of 16 bytes may have nothing behind it; and lines of the cache
    are told by the place of the largest array."""
    space = np.zeros(COUNT + 4096, np.float32)
    first = -(space.ctypes.data // 4) % 1024
    if end == "page":
        first += 1024 - COUNT % 1024
    out = space[first + (end == "odd") :][:COUNT]
    x = np.ones(COUNT + 64, np.float32)
    _, held = run(x, out, monkeypatch)
    assert not np.may_share_memory(held.held[1], out)
    assert (out[:64] == 2.5).all()


def test_tables_by_dword_need_the_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = np.ones(COUNT, np.float32), np.zeros(COUNT, np.float32)
    _, held = run(x, out, monkeypatch, trace_nonfinite=True)
    assert not np.may_share_memory(held.held[0], x) and out[0] == 2.5


def test_a_machine_without_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "free_bytes", lambda: 300 << 20)
    monkeypatch.setattr(memory, "_LARGE", 1 << 40)
    x = np.zeros(64 << 20, np.float32)
    with pytest.raises(ConfigError, match=r"copies .* take 288 MiB; this machine has 300 MiB free"):
        run(x, np.zeros(COUNT, np.float32), monkeypatch)

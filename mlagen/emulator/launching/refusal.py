"""Whether the emulator would execute a kernel at all, whatever its launch is."""

from __future__ import annotations

from mlagen.binary import KernelCode
from mlagen.errors import BinaryError, ConfigError, UnsupportedError
from mlagen.ptx import Entry, Module


def why_refused(code: KernelCode | Module, entry: Entry | None = None) -> str:
    """What the emulator does not model of a kernel, or of an `entry` of PTX; "" for nothing, and
    where its compiler is not installed, so that nobody knows."""
    try:
        if isinstance(code, Module):
            assert entry is not None
            _read_ptx(code, entry)
        else:
            _read_gfx950(code)
    except (UnsupportedError, ConfigError, BinaryError) as error:
        return " ".join(error.message.split())
    except ImportError:
        return ""
    return ""


def _read_gfx950(kernel: KernelCode) -> None:
    from mlagen.emulator.gfx950.machine import require_modelled
    from mlagen.emulator.gfx950.translate import translate

    require_modelled(kernel)
    translate(kernel)


def _read_ptx(module: Module, entry: Entry) -> None:
    from mlagen.emulator.ptx.host.entries import machine_of
    from mlagen.emulator.ptx.program import translate

    machine_of(module.target)
    translate(module, entry)

"""Other libraries that decode MLA, each in a module of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol

from mlagen.bench.case import Case
from mlagen.errors import ConfigError, MlagenError

# Module and class of each, in the order of a report.
PEERS = {
    "flash_mla": ("flash_mla", "FlashMla"),
    "flashinfer": ("flashinfer", "FlashInfer"),
    "fa3": ("fa3", "FlashAttention3"),
    "fa3_vllm": ("fa3_vllm", "VllmFlashAttention3"),
    "triton_vllm": ("triton_vllm", "VllmTriton"),
    "torch_sdpa": ("torch_sdpa", "TorchSdpa"),
}


class PeerAbsent(MlagenError):
    """The library is not there, or not what is expected; the message says what is missing."""

    exit_code = 5


class PeerUnfit(MlagenError):
    """The library does not do this workload."""


class Peer(Protocol):
    """A library. `name` is its key in `PEERS`."""

    name: str

    def load(self) -> str:
        """Imports it and returns its version. PeerAbsent: why that fails."""
        ...

    def prepare(self, case: Case) -> Callable[[], Any]:
        """A call that computes O [batch, q_len, heads, 512]. What the library lets a user do once
        for many calls is done here. PeerUnfit: it does not do this workload."""
        ...


def peer(name: str) -> Peer:
    """A peer, not yet loaded."""
    module, kind = PEERS[name]
    made: Peer = getattr(import_module(f"{__name__}.{module}"), kind)()
    return made


def chosen(names: Sequence[str] | None) -> list[Peer]:
    """The peers of these names, or all. ConfigError for an unknown name."""
    for name in names or ():
        if name not in PEERS:
            raise ConfigError(f"unknown peer {name!r}", hint=f"peers: {', '.join(PEERS)}")
    return [peer(name) for name in (PEERS if names is None else dict.fromkeys(names))]


def imported(name: str, install: str) -> Any:
    """The module of that name. PeerAbsent: it does not import."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.split(".")[0] == error.name.split(".")[0]:
            raise PeerAbsent(f"{error.name} is not installed", hint=install) from error
        raise PeerAbsent(f"{name} does not import: {error}", hint=install) from error
    except Exception as error:  # whatever a library does while it is imported
        first = str(error).partition("\n")[0]
        raise PeerAbsent(f"{name} does not import: {type(error).__name__}: {first}") from error


def version(module: Any) -> str:
    return str(getattr(module, "__version__", "of unknown version"))


def require(fits: bool, reason: str) -> None:
    """PeerUnfit unless the workload fits."""
    if not fits:
        raise PeerUnfit(reason)

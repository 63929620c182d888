"""Which target's code a GPU runs: an NVIDIA one by its compute capability, an AMD one by its
architecture.

A target whose name ends in `a` has instructions of one architecture alone: its code runs on exactly
the compute capability that its name says, on none of the same family either (PTX ISA, .target).
"""

from __future__ import annotations

from mlagen.errors import UnsupportedError
from mlagen.targets.registry import AMD, NVIDIA, TARGETS, limits_of

NVIDIA_TARGETS = tuple(name for name, row in TARGETS.items() if row.vendor is NVIDIA)
AMD_TARGETS = tuple(name for name, row in TARGETS.items() if row.vendor is AMD)
Capability = tuple[int, int]


def target_of(capability: Capability, gpu: str) -> str:
    """The target whose code a GPU of that compute capability runs. UnsupportedError: there is none;
    `gpu` names it there."""
    for name in NVIDIA_TARGETS:
        if limits_of(name).compute_capability == capability:
            return name
    near = [
        name for name in NVIDIA_TARGETS if limits_of(name).compute_capability[0] == capability[0]
    ]
    raise UnsupportedError(
        f"{gpu} has compute capability {written(capability)}, for which there is no target"
        + "".join(f"; code for {name} does not run there" for name in near),
        hint=one_alone(near[0]) if near else f"there is code for {told()}",
    )


def amd_target(architecture: str, gpu: str) -> str:
    """The target whose code an AMD GPU runs; `architecture` as ROCm says it, with its features.
    UnsupportedError: there is none; `gpu` names it there."""
    name = architecture.partition(":")[0]
    if name in AMD_TARGETS:
        return name
    raise UnsupportedError(
        f"{gpu} is a {name}, for which there is no target",
        hint=f"there is code for {', '.join(AMD_TARGETS)}",
    )


def one_alone(target: str) -> str:
    """Where code for a target runs, in words."""
    capability = written(limits_of(target).compute_capability)
    return (
        f"code for {target} runs on compute capability {capability} alone: the a in its name says "
        "that it has instructions of one architecture"
    )


def told() -> str:
    """All targets with the compute capability of each."""
    capabilities = {name: written(limits_of(name).compute_capability) for name in NVIDIA_TARGETS}
    return ", ".join(f"{name} (compute capability {text})" for name, text in capabilities.items())


def written(capability: Capability) -> str:
    """As NVIDIA writes it: 10.3."""
    return ".".join(map(str, capability))

"""The targets by name, one row each: what tools ask of one without what generates code for it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Vendor:
    """What is alike for all targets of a vendor. `memory`: on-chip memory that a workgroup shares,
    by name; `group`: what a workgroup is made of; `code`, `text`: files of an artifact; `launcher`:
    the class of `mlagen.launch`; `devices`: the environment variable that says which GPUs a process
    sees."""

    name: str
    memory: str
    group: str
    code: str
    text: str
    launcher: str
    devices: str


AMD = Vendor(
    "AMD", "LDS", "waves", "kernel.co", "kernel.s", "HipLauncher", "HIP_VISIBLE_DEVICES"
)  # fmt: skip
NVIDIA = Vendor(
    "NVIDIA", "SMEM", "warps", "kernel.cubin", "kernel.ptx", "CudaLauncher", "CUDA_VISIBLE_DEVICES"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TargetRow:
    """A target. `folder`: the package that holds it; `chips`: what the driver calls its GPUs, where
    it does not give the target's own name; `emulated`: an emulator runs its code without the
    hardware; `followed`: the audit follows paths of its kernels; `modelled`: a cycle model predicts
    their speed."""

    folder: str
    vendor: Vendor
    chips: tuple[str, ...] = ()
    emulated: bool = True
    followed: bool = True
    modelled: bool = False


TARGETS = {
    "gfx950": TargetRow("mlagen.targets.gfx950", AMD, modelled=True),
    "sm_90a": TargetRow("mlagen.targets.sm_90a", NVIDIA, ("H100", "H200", "H800", "H20", "GH200")),
    "sm_100a": TargetRow("mlagen.targets.sm_100a", NVIDIA, ("B200", "GB200"), followed=False),
}
EMULATED = tuple(name for name, row in TARGETS.items() if row.emulated)
MODELLED = tuple(name for name, row in TARGETS.items() if row.modelled)


def vendor_of(target: str) -> Vendor:
    """The vendor of a target, which need not be one of ours: names of NVIDIA's begin with sm_."""
    known = TARGETS.get(target)
    return known.vendor if known else NVIDIA if target.startswith("sm_") else AMD


def limits_of(name: str) -> Any:
    """The table of a target's capacities: the value named like the target in its `limits`."""
    return getattr(importlib.import_module(f"{TARGETS[name].folder}.limits"), name.upper())

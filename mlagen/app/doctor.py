"""What this machine has of all that mlagen can use, and how to get the rest.

Looking changes nothing: nothing is imported that starts a driver, no device is opened.
"""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlagen import env
from mlagen.codegen.target import target_of
from mlagen.codegen.tools import Search
from mlagen.extras import install
from mlagen.launch import HipLauncher
from mlagen.launch.hip_library import NAME as HIP_LIBRARY
from mlagen.launch.hip_library import runtime_path
from mlagen.targets.nvidia.ptxas import told
from mlagen.targets.registry import NVIDIA, TARGETS

_PURPOSE = {
    "": "core",
    "emulator": "mlagen verify",
    "amd": "assembling without ROCm or LLVM",
    "nvidia": "assembling without a CUDA toolkit",
    "cuda": "launching on NVIDIA GPUs",
    "hip": "launching on AMD GPUs",
    "tune": "the samplers of mlagen tune",
    "cluster": "mlagen tune on several machines",
    "plot": "plots of mlagen bench and mlagen tune",
    "dev": "running the tests",
}

NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")  # of the amdgpu driver


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked for. `detail` is where it is, or why it is not there."""

    name: str
    found: bool
    version: str = ""
    detail: str = ""
    optional: bool = False  # nothing is lost without it

    @property
    def state(self) -> str:
        return "found" if self.found else "-" if self.optional else "missing"


@dataclass(frozen=True, slots=True)
class CheckGroup:
    """Checks of one kind."""

    title: str
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Ability:
    """What can be done here for a target: "yes", or what is missing and how to get it."""

    target: str
    build: str
    verify: str
    launch: str


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """All that was found; `advice` holds one sentence or command for each thing to do."""

    groups: tuple[CheckGroup, ...]
    advice: tuple[str, ...]
    builds: tuple[str, ...]  # targets
    can_verify: bool
    abilities: tuple[Ability, ...]

    @property
    def exit_code(self) -> int:
        """0 where kernels can be built for some target, and run: in the emulator or on a GPU."""
        runs = any(each.build == "yes" == each.launch for each in self.abilities)
        return 0 if self.builds and (self.can_verify or runs) else 5


def examine() -> DoctorReport:
    """Looks at this machine."""
    packages = _packages()
    targets: dict[Search, list[str]] = {}  # that each assembles for
    for target in TARGETS:
        targets.setdefault(target_of(target).tools, []).append(target)
    assemblers = {search: tuple(_tools(search, names)) for search, names in targets.items()}
    missing = {
        extra: tuple(check.name for check in checks if not check.found)
        for extra, checks in packages.items()
    }
    builds = tuple(
        target
        for search, names in targets.items()
        for target in names
        if any(check.found for check in assemblers[search]) and not missing[""]
    )
    can_verify = not missing[""] and not missing.get("emulator")
    advice = []
    if builds:
        verifies = "and mlagen verify works" if can_verify else "but mlagen verify does not work"
        advice.append(f"mlagen build works here for {', '.join(builds)}, {verifies}.")
    for search, names in targets.items():
        if not any(check.found for check in assemblers[search]):
            advice.append(f"no assembler for {', '.join(names)}: {search.hint}")
    if missing[""]:
        advice.append(f"missing {', '.join(missing[''])}: {install()}")
    if missing.get("emulator"):
        advice.append(f"missing {', '.join(missing['emulator'])}: {install('emulator')}")
    advice += [
        f"{check.name} {check.version} {check.detail}"
        for check in packages.get("emulator", ())
        if not check.found and check.version
    ]
    gpus = tuple(_gpus())
    here = [arch for arch in _amd_archs() if arch in HipLauncher.targets]
    if here and missing.get("hip"):
        advice.append(f"missing hip-python to launch on the {here[0]}: {install('hip')}")
    if here and not any(check.found for check in gpus if check.name == "HIP runtime"):
        advice.append(f"no HIP runtime to launch on the {here[0]}: {_ROCM}")
    groups = (
        CheckGroup("machine", tuple(_machine())),
        *(CheckGroup(f"{s.group}, in the order they are taken", assemblers[s]) for s in targets),
        *(
            CheckGroup(f"python packages: {_title(extra)}", checks)
            for extra, checks in packages.items()
        ),
        CheckGroup("GPUs", gpus),
        CheckGroup("environment variables", tuple(_variables())),
    )
    lost = {
        target: search.hint.partition("\n")[0].strip()
        for search, names in targets.items()
        for target in names
        if target not in builds
    }
    abilities = tuple(
        Ability(
            target,
            lost.get(target, "yes"),
            "yes" if can_verify else install("emulator"),
            _launch(target, gpus, missing),
        )
        for target in TARGETS
    )
    return DoctorReport(groups, tuple(advice), builds, can_verify, abilities)


def _launch(target: str, gpus: Sequence[Check], missing: Mapping[str, Sequence[str]]) -> str:
    """Whether a kernel for the target can run on a GPU here, or what is missing first."""
    found = {check.name: check.found for check in gpus}
    row = TARGETS[target]
    if row.vendor is NVIDIA:
        models = _nvidia_models()
        if not found["NVIDIA driver"] or not found["CUDA driver library"]:
            return "no NVIDIA driver"
        if models and not any(name in model for model in models for name in row.chips):
            return f"no {' or '.join(row.chips)}: {', '.join(dict.fromkeys(models))}"
        return install("cuda") if missing.get("cuda") else "yes"
    if target not in _amd_archs():
        return f"no {target} GPU"
    if not found["HIP runtime"]:
        return "no HIP runtime"
    return install("hip") if missing.get("hip") else "yes"


def _nvidia_models() -> list[str]:
    """The name of each NVIDIA GPU that the driver knows; none where it does not say."""
    read = (_read(path) for path in sorted(NVIDIA_GPUS.glob("*/information")))
    return [model for text in read if (model := _match(r"Model:\s*(\S.*)", text))]


def _title(extra: str) -> str:
    purpose = _PURPOSE.get(extra, "")
    return purpose if not extra else f"mlagen[{extra}]" + (f", for {purpose}" if purpose else "")


def _machine() -> list[Check]:
    store = env.artifacts_dir()
    return [
        Check("mlagen", True, importlib.metadata.version("mlagen"), str(Path(__file__).parent)),
        Check("python", True, platform.python_version(), sys.executable),
        Check("platform", True, platform.machine(), f"{platform.system()}, {os.cpu_count()} CPUs"),
        Check("store", True, "", f"{store}{'' if store.is_dir() else ' (nothing built yet)'}"),
    ]


def _tools(search: Search, targets: Sequence[str]) -> list[Check]:
    return [
        Check(tried.place, True, _told(tools.version), f"{tools.commands[0][0]} for {target}")
        if (tools := tried.tools)
        else Check(tried.place, False, "", tried.reason)
        for target in targets
        for tried in search.every(target)
    ]


def _told(version: str) -> str:
    """A tool's version, of ptxas beside the one that was measured with."""
    name, _, number = version.partition(" ")
    return f"{name} {told(number)}" if name == "ptxas" else version


def _packages() -> dict[str, tuple[Check, ...]]:
    """The installed distribution's own requirements, by extra; "" is what everyone needs."""
    groups: dict[str, list[Check]] = {"": []}
    for requirement in importlib.metadata.requires("mlagen") or ():
        extra = _match(r"extra\s*==\s*['\"](\w+)", requirement)
        groups.setdefault(extra, []).append(_package(requirement, extra))
    return {extra: tuple(checks) for extra, checks in groups.items()}


def _package(requirement: str, extra: str) -> Check:
    name = _match(r"^([A-Za-z0-9._-]+)", requirement)
    pinned = _match(r"==([0-9][0-9a-z.]*)", requirement)
    command = install(extra)
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, False, "", command)
    if pinned and distribution.version != pinned:
        return Check(name, False, distribution.version, f"needs {pinned}: {command}")
    return Check(name, True, distribution.version, str(distribution.locate_file("")))


def _match(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else ""


_ROCM, _CUDA = "amdgpu-install --usecase=dkms,hip", "apt install nvidia-driver-<series>"


def _gpus() -> list[Check]:
    amd, kfd = Path("/sys/module/amdgpu"), Path("/dev/kfd")
    nvidia, cuda = Path("/proc/driver/nvidia/version"), ctypes.util.find_library("cuda")
    return [
        _file("amdgpu driver", amd, _read(amd / "version"), _ROCM),
        _file("AMD compute device", kfd, "", _ROCM),
        _amd_gpus(),
        _hip_runtime(),
        _file("NVIDIA driver", nvidia, _match(r"\s(\d+\.\d[\d.]*)\s", _read(nvidia)), _CUDA),
        Check("CUDA driver library", bool(cuda), "", cuda or f"no libcuda; {_CUDA}"),
    ]


def _amd_archs() -> list[str]:
    """The processor of each AMD GPU that the driver knows, by what it says without being opened."""
    found = []
    for node in sorted(KFD_NODES.glob("*"), key=lambda path: (len(path.name), path.name)):
        version = int(_match(r"gfx_target_version (\d+)", _read(node / "properties")) or 0)
        if version:  # 0: a CPU. Decimal digits: major, minor and stepping, two each but the first
            found.append(f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}")
    return found


def _amd_gpus() -> Check:
    archs = _amd_archs()
    if not archs:
        return Check("AMD GPUs", False, "", f"none in {KFD_NODES}")
    listed = ", ".join(f"{archs.count(arch)} {arch}" for arch in dict.fromkeys(archs))
    fits = ", ".join(HipLauncher.targets)
    usable = any(arch in HipLauncher.targets for arch in archs)
    return Check("AMD GPUs", True, listed, str(KFD_NODES) if usable else f"kernels need {fits}")


def _hip_runtime() -> Check:
    path = runtime_path()
    if not path:
        where = f"no {HIP_LIBRARY} in $ROCM_PATH/lib, /opt/rocm/lib or the library path"
        return Check("HIP runtime", False, "", f"{where}; {_ROCM}")
    version = Path(path).resolve().name.partition(".so.")[2]
    return Check("HIP runtime", True, version, path)


def _file(name: str, path: Path, version: str, install: str) -> Check:
    if path.exists():
        return Check(name, True, version, str(path))
    return Check(name, False, "", f"no {path}; {install}")


def _variables() -> list[Check]:
    return [
        Check(f"${name}", name in os.environ, os.environ.get(name, ""), meaning, optional=True)
        for name, meaning in env.VARIABLES.items()
    ]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""

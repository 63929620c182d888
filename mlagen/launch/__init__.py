"""Running an artifact: one interface, a launcher for each place it can run.

Importing this loads neither the templates' engine nor the schedule language, and no package of a
GPU's maker: a machine that only launches needs neither, one without a GPU needs none. What belongs
to one target is loaded when it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlagen.launch.device_tensor import is_on_gpu
from mlagen.launch.emulated import EmulatedLauncher, Mode
from mlagen.launch.gpu import GpuLauncher, PreparedLaunch
from mlagen.launch.launcher import Launcher, LaunchFailed, LaunchRefused, LaunchReport
from mlagen.targets.registry import TARGETS, vendor_of

if TYPE_CHECKING:
    from mlagen.launch.cuda import CudaLauncher
    from mlagen.launch.hip import HipLauncher

__all__ = [
    "CudaLauncher",
    "EmulatedLauncher",
    "GpuLauncher",
    "HipLauncher",
    "LaunchFailed",
    "LaunchRefused",
    "LaunchReport",
    "Launcher",
    "Mode",
    "PreparedLaunch",
    "gpu_launcher",
    "is_on_gpu",
]


# Where the launcher of a vendor's GPUs is.
_PLACES = {"CudaLauncher": "mlagen.launch.cuda", "HipLauncher": "mlagen.launch.hip"}


def gpu_launcher(target: str) -> GpuLauncher:
    """The launcher for a target's GPUs. LaunchRefused: there is none."""
    if target not in TARGETS:
        hint = f"targets: {', '.join(TARGETS)}"
        raise LaunchRefused(f"no launcher runs {target} on a GPU", hint=hint)
    made: GpuLauncher = __getattr__(vendor_of(target).launcher)()
    return made


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)

"""Running an artifact: one interface, a launcher for each place it can run.

Importing this loads neither the templates' engine nor the schedule language, and no package of a
GPU's maker: a machine that only launches needs neither, one without a GPU needs none.
"""

from mlagen.launch.cuda import CudaLauncher
from mlagen.launch.device_tensor import is_on_gpu
from mlagen.launch.emulated import EmulatedLauncher, Mode
from mlagen.launch.gpu import GpuLauncher, PreparedLaunch
from mlagen.launch.hip import HipLauncher
from mlagen.launch.launcher import Launcher, LaunchFailed, LaunchRefused, LaunchReport

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


def gpu_launcher(target: str) -> CudaLauncher | HipLauncher:
    """The launcher for a target's GPUs. LaunchRefused: there is none."""
    for launcher in (CudaLauncher, HipLauncher):
        if target in launcher.targets:
            return launcher()
    legal = ", ".join((*CudaLauncher.targets, *HipLauncher.targets))
    raise LaunchRefused(f"no launcher runs {target} on a GPU", hint=f"targets: {legal}")

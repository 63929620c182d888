"""Running an artifact: one interface, a launcher for each place it can run.

Importing this loads neither the templates' engine nor the schedule language, and no package of a
GPU's maker: a machine that only launches needs neither, one without a GPU needs none.
"""

from mlagen.launch.cuda import CudaLauncher, PreparedLaunch
from mlagen.launch.device_tensor import is_on_gpu
from mlagen.launch.emulated import EmulatedLauncher
from mlagen.launch.launcher import Launcher, LaunchFailed, LaunchRefused, LaunchReport

__all__ = [
    "CudaLauncher",
    "EmulatedLauncher",
    "LaunchFailed",
    "LaunchRefused",
    "LaunchReport",
    "Launcher",
    "PreparedLaunch",
    "is_on_gpu",
]

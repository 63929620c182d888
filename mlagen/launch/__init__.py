"""Running an artifact: one interface, a launcher for each place it can run.

Importing this loads neither the templates' engine nor the schedule language: a machine that only
launches needs neither.
"""

from mlagen.launch.emulated import EmulatedLauncher
from mlagen.launch.launcher import Launcher, LaunchRefused, LaunchReport

__all__ = ["EmulatedLauncher", "LaunchRefused", "LaunchReport", "Launcher"]

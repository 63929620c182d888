"""Launches described by files: kernels of anybody's code objects, with arrays in and out.

from mlagen.emulator.launching import read_launch_file, run_launch
run = run_launch(open("kernel.co", "rb").read(), read_launch_file("launch.toml"))
run.arrays["out"]
"""

from mlagen.emulator.launching.buffers import OutputReport
from mlagen.emulator.launching.known import argument_bytes
from mlagen.emulator.launching.launch_file import (
    ArgumentSpec,
    BufferSpec,
    LaunchFile,
    TiledTensorSpec,
    parse_launch,
    read_launch_file,
)
from mlagen.emulator.launching.refusal import why_refused
from mlagen.emulator.launching.run_file import MAX_MEMORY, Files, GuardDamage, LaunchRun, run_launch
from mlagen.emulator.launching.template import template
from mlagen.emulator.launching.template_ptx import template_ptx
from mlagen.emulator.ptx.host.entries import entry_of

__all__ = [
    "MAX_MEMORY",
    "ArgumentSpec",
    "BufferSpec",
    "Files",
    "GuardDamage",
    "LaunchFile",
    "LaunchRun",
    "OutputReport",
    "TiledTensorSpec",
    "argument_bytes",
    "entry_of",
    "parse_launch",
    "read_launch_file",
    "run_launch",
    "template",
    "template_ptx",
    "why_refused",
]

"""mlagen: hand-scheduled attention kernels in real assembly, from readable schedules.

import mlagen
kernel = mlagen.build(NAME, num_heads=8, num_kv_heads=2)  # NAME and fields: see `mlagen list`
out = kernel(q, k, v)       # numpy arrays: emulated
"""

from __future__ import annotations

from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mlagen.dsl import Config
    from mlagen.launch import Launcher

__version__ = "0.1.0"
__all__ = ["__version__", "build"]


def build(
    kernel: str | PathLike[str] | Config,
    *,
    target: str | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates: Path | str | None = None,
    launcher: Launcher | None = None,
    shape: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Any:
    """Builds a kernel and returns it as a callable: on numpy arrays, for every target, it is
    emulated; on tensors of a GPU of its target (torch, CuPy, DLPack) it is launched there.

    `kernel` is a schedule's name, the path of a schedule file, or a config, a problem with knobs
    (`mlagen.ops` has them), which brings the rest. `fields` are those of its problem
    (`num_heads`, `mask`, …), and its knobs (`kv_block`, …) where they are given one by one; then
    the others are as below. `knobs` are the schedule's choices, `templates` a folder looked into
    before the shipped ones. `target` picks among a file's schedules. `launcher` runs the calls
    (`mlagen.launch`); without one the tensors say where.

    Without `knobs` the best that `mlagen tune` knows are taken: this machine's winner, else a
    shipped one, else the defaults; the callable's `choice` says which. `shape`: sizes of the calls
    that it is for (`batch`, `keys`, …), where winners of several are known. `knobs={}` are the
    defaults, and then no shape is taken.

    The callable's class is that of the kernel: `mlagen.ops` has them. A type checker knows it for
    every shipped kernel by its name, with its fields and knobs; a schedule of your own is given
    as a `Path` there, and is `Any`.

    Raises ConfigError for an unknown field, knob, size or value, and for an argument of another
    type; and what the build refuses (`mlagen.errors`). What is not installed or not found is a
    MissingError. The first call in a process assembles, which takes a second or a few.
    """
    # Imported here: `import mlagen.launch` runs this file and must not load the generator.
    import logging

    from mlagen.app.build import build_artifact, callable_of, check_arguments
    from mlagen.errors import ConfigError
    from mlagen.telling import telling
    from mlagen.tune.lookup import build_best

    if isinstance(kernel, PathLike):
        kernel = fspath(kernel)
    elif not isinstance(kernel, str) and not hasattr(kernel, "to_fields"):
        raise ConfigError(
            f"a kernel is a name, a path or a config, not {type(kernel).__name__}",
            hint="mlagen list shows the names",
        )
    if not isinstance(kernel, str):
        fields = {**kernel.to_fields(), **fields}
        kernel = kernel.kernel
    check_arguments(target=target, knobs=knobs, templates=templates, launcher=launcher, shape=shape)
    choice: object = "given"
    with telling(logging.getLogger("mlagen.build"), f"building {kernel}"):
        if knobs is None:
            artifact, choice = build_best(
                kernel, fields, target=target, templates=templates, shape=shape
            )
        else:
            artifact = build_artifact(kernel, fields, knobs, target=target, templates=templates)
    made = callable_of(artifact, launcher)
    made.choice = str(choice)
    return made

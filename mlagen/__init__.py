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
    """Builds a kernel and returns it as a callable: on numpy arrays for gfx950, which is emulated,
    on tensors of the GPU for sm_90a.

    `kernel` is a schedule's name, the path of a schedule file, or a config, a problem with knobs
    (`mlagen.ops` has them), which brings the rest. `fields` are those of its problem
    (`num_heads`, `mask`, …), and its knobs (`kv_block`, …) where they are given one by one; then
    the others are as below. `knobs` are the schedule's choices, `templates` a folder looked into
    before the shipped ones. `target` is what the schedule is for, where it is for one.

    Without `knobs` the best that `mlagen tune` knows are taken: this machine's winner, else a
    shipped one, else the defaults; the callable's `choice` says which. `shape`: sizes of the calls
    that it is for, where winners of several are known. `knobs={}` are the defaults.

    Raises ConfigError for an unknown field, knob or value, and what the build refuses
    (`mlagen.errors`).
    """
    # Imported here: `import mlagen.launch` runs this file and must not load the generator.
    import logging

    from mlagen.errors import ConfigError
    from mlagen.request import build_artifact, callable_of
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

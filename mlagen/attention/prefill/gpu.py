"""A prefill call on tensors of a GPU: shapes, types and numbers checked, contents not looked at.

Reading a length or an offset would wait for the GPU. What the host cannot know it is told:
`max_seq_len`. Offsets, lengths, start positions and page tables must be what `PrefillInputs` asks
for; nothing here can check it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.artifact import DTYPE_BYTES
from mlagen.attention.masks import MAX_POSITION
from mlagen.attention.prefill.host import PrefillArguments, scales
from mlagen.attention.prefill.inputs import PrefillInputs
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.errors import ConfigError
from mlagen.launch.device_tensor import DeviceTensor, device_tensor, is_torch
from mlagen.problem.formats import ELEMENT_TYPES

# What torch calls the types that are made here.
_TORCH_NAMES = {
    "bf16": "bfloat16",
    "fp8_e4m3": "float8_e4m3fn",
    "fp32": "float32",
    "int32": "int32",
}
_LOOK = -1  # DLPack: the tensor is looked at, not used, so its maker waits for nothing

Shape = tuple[int | None, ...]


def gpu_arguments(
    inputs_type: Callable[..., PrefillInputs],
    config: PrefillConfig,
    tensors: Mapping[str, Any],
    scaled: tuple[float, float],
    *,
    start_pos: Any,
    max_seq_len: int | None,
    out: Any,
    lse: Any,
) -> PrefillArguments:
    """Checks one call. `tensors`: q and what else of the arrays of `inputs_type`, the class of such
    calls on the host, is given (not None). `scaled`: the scales of scores and values, checked
    already.

    `start_pos` is one number or, where sequences have their own, int32 [batch]. `max_seq_len` is
    the query rows of the longest sequence, for ragged kernels. `out` and `lse` are written to;
    torch makes them where they are not given.

    Raises ConfigError for what the kernel does not take, or misses, and for tensors that are not on
    a GPU, of another shape or type, or overlapped by an output.
    """
    score_scale, value_scale = scaled
    forms = _forms(config)
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    one_start = isinstance(start_pos, int | np.integer)
    if config.by_sequence and not one_start:
        given["start_positions"] = start_pos
    elif not one_start:
        raise ConfigError(
            f"start_pos is a {type(start_pos).__name__}, but all sequences of a dense, contiguous "
            f"kernel start at one position"
        )
    _check_names(config, forms, given)
    views = {name: device_tensor(name, tensor, _LOOK) for name, tensor in given.items()}
    for name, view in views.items():
        _check(view, *forms[name])
    batch, seq_len = _extents(config, views, max_seq_len)
    forms = _forms(config, batch, seq_len, views)
    for name, view in views.items():
        _check(view, *forms[name])
    if not config.by_sequence:
        _check_dense(inputs_type, config, views, score_scale, start_pos)
    elif "start_positions" not in given:
        given["start_positions"] = _filled(start_pos, batch, given["q"])
    for name, label, buffer in (("o", "out", out), ("lse", "lse", lse)):
        if name in forms:
            given[name] = _output(label, buffer, given["q"], views, *forms[name])
        elif buffer is not None:
            raise ConfigError("lse is given, but the kernel does not write it", hint="lse=true")
    scalars: dict[str, int | float] = {
        "seq_len": seq_len, "batch": batch, **scales(config, score_scale, value_scale)
    }  # fmt: skip
    if not config.by_sequence:
        scalars |= {"num_keys": views["k"].shape[1], "start_pos": start_pos}
    if config.page_size:
        scalars["max_pages"] = views["page_table"].shape[1]
    sizes = {"num_heads": config.num_heads, "seq_len": seq_len, "batch": batch}
    return PrefillArguments(given, scalars, sizes)


def _forms(
    config: PrefillConfig,
    batch: int | None = None,
    seq_len: int | None = None,
    views: Mapping[str, DeviceTensor] | None = None,
) -> dict[str, tuple[Shape, str]]:
    """Shape and type of each tensor that the kernel takes or writes, as far as is known. None: any
    extent."""
    rows = views["q"].shape[0] if views and config.ragged else None
    leading: Shape = (rows,) if config.ragged else (batch, seq_len)
    of_keys: Shape = (batch, None)
    if config.page_size:
        of_keys = (None, config.page_size)
    elif config.ragged:
        of_keys = (None,)
    found: dict[str, tuple[Shape, str]] = {
        "q": ((*leading, config.num_heads, config.qk_width), config.dtype),
        **{name: ((*of_keys, *key), config.dtype) for name, key in config.key_shapes.items()},
    }
    offsets = None if batch is None else batch + 1
    if config.ragged:
        found["q_offsets"] = ((offsets,), "int32")
        if not config.page_size:
            found["kv_offsets"] = ((offsets,), "int32")
    if config.page_size:
        found["kv_lengths"] = ((batch,), "int32")
        found["page_table"] = ((batch, None), "int32")
    if config.by_sequence:
        found["start_positions"] = ((batch,), "int32")
    if config.sink:
        found["sinks"] = ((config.num_heads,), "fp32")
    found["o"] = ((*leading, config.num_heads, config.v_width), config.output_dtype)
    if config.lse:
        heads = config.num_heads
        found["lse"] = ((heads, rows) if config.ragged else (batch, heads, seq_len), "fp32")
    return found


def _check_names(config: PrefillConfig, forms: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """ConfigError for an array that the kernel needs and has not, or has and does not take."""
    needed = forms.keys() - {"o", "lse", "start_positions"}
    for name in sorted(needed - given.keys()):
        raise ConfigError(f"{name} is missing: the kernel is built for {config.form}")
    for name in sorted(given.keys() - forms.keys()):
        raise ConfigError(
            f"{name} is given, but the kernel does not take it: it is built for {config.form}"
        )


def _check(view: DeviceTensor, shape: Shape, dtype: str) -> None:
    """ConfigError for another type or shape."""
    if view.dtype != dtype:
        hint = None
        if dtype == "bf16" and view.dtype not in DTYPE_BYTES:
            hint = "an array interface cannot say bf16: a library that has it names it by DLPack"
        raise ConfigError(f"{view.name} is {view.dtype}, the kernel wants {dtype}", hint=hint)
    if len(view.shape) != len(shape) or any(
        extent is not None and extent != got for extent, got in zip(shape, view.shape, strict=True)
    ):
        wanted = ", ".join("*" if extent is None else str(extent) for extent in shape)
        raise ConfigError(f"{view.name} has shape {view.shape}, the kernel wants ({wanted})")


def _extents(
    config: PrefillConfig, views: Mapping[str, DeviceTensor], max_seq_len: int | None
) -> tuple[int, int]:
    """Sequences, and query rows of the longest."""
    leading = len(views["k"].shape) - len(config.key_shapes["k"])
    for name in config.key_shapes:
        if views[name].shape[:leading] != views["k"].shape[:leading]:
            raise ConfigError(f"k has shape {views['k'].shape}, but {name} has {views[name].shape}")
    if not config.ragged:
        if max_seq_len is not None:
            raise ConfigError(
                f"max_seq_len={max_seq_len} is given, but the shape of q tells it: the kernel is "
                f"built for ragged=False"
            )
        return views["q"].shape[0], views["q"].shape[1]
    rows, batch = views["q"].shape[0], views["q_offsets"].shape[0] - 1
    if batch < 1:
        raise ConfigError(
            f"q_offsets has {batch + 1} entries: one a sequence and one more are needed"
        )
    if max_seq_len is None:
        raise ConfigError(
            "max_seq_len is missing: the query rows of the longest sequence, which the grid needs "
            "and which is not read from the GPU",
            hint=f"{rows}, the rows of q, is always enough, but starts workgroups without work",
        )
    if not 1 <= max_seq_len <= rows:
        raise ConfigError(f"max_seq_len={max_seq_len} is not in 1 .. {rows}, the rows of q")
    return batch, max_seq_len


def _check_dense(
    inputs_type: Callable[..., PrefillInputs],
    config: PrefillConfig,
    views: Mapping[str, DeviceTensor],
    scale: float,
    start_pos: int,
) -> None:
    """`inputs_type` checks the numbers, on arrays of the same shapes that take no memory."""

    def likeness(name: str) -> npt.NDArray[Any]:
        view = views[name]
        return np.broadcast_to(np.zeros((), ELEMENT_TYPES[view.dtype]), view.shape)

    arrays = {"v": None, **{name: likeness(name) for name in views}}
    inputs_type(config=config, scale=scale, start_pos=start_pos, **arrays)


def _filled(value: int, batch: int, like: Any) -> Any:
    """An int32 tensor [batch] of one start position, beside `like`."""
    if not 0 <= value <= MAX_POSITION:
        raise ConfigError(f"start_pos={value} is not in 0 .. {MAX_POSITION}")
    if not is_torch(like):
        raise ConfigError(
            f"start_pos={value} is a number, and mlagen cannot make a {type(like).__module__} "
            f"tensor of it",
            hint=f"pass an int32 tensor of shape ({batch},)",
        )
    torch = sys.modules["torch"]
    return torch.full((batch,), value, dtype=torch.int32, device=like.device)


def _output(
    label: str, out: Any, like: Any, views: Mapping[str, DeviceTensor], shape: Shape, dtype: str
) -> Any:
    """`out`, checked, or a new tensor beside `like` where torch makes one."""
    if out is None:
        if not is_torch(like):
            raise ConfigError(
                f"{label} is not given, and mlagen cannot make a {type(like).__module__} tensor",
                hint=f"pass {label}= of shape {shape} and type {dtype}",
            )
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, _TORCH_NAMES[dtype]), device=like.device)
    view = device_tensor(label, out, _LOOK)
    _check(view, shape, dtype)
    for name, other in views.items():
        if view.pointer < _end(other) and other.pointer < _end(view):
            raise ConfigError(f"{label} overlaps {name} in memory", hint="pass another tensor")
    return out


def _end(view: DeviceTensor) -> int:
    # Contiguous, or the launcher refuses it.
    return view.pointer + math.prod(view.shape) * DTYPE_BYTES[view.dtype]

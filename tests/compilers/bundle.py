"""Bundles: folders that anybody can launch without a compiler, here or on a GPU.

    python tests/compilers/bundle.py FOLDER [CASE …]

writes FOLDER/CASE for each case, or for those that are named:

* kernel.ptx, and kernel.cubin made of it by ptxas
* launch.toml: the launch, in the words of `mlagen emulate`
* BUFFER.npy: what a buffer holds before it
* BUFFER.expected.npy, BUFFER.bound.npy: of each output, the reference and the largest error
* case.json: which outputs there are, and whether their bits are defined
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import triton
from compiling import PTXAS_OPTIONS, Compiled, Parameter, TensorMap, compiled
from corpus import CASES

from mlagen.disk import write_files
from mlagen.emulator.launching.scalars import DTYPES

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def write_bundle(kernel: Compiled, folder: Path) -> None:
    """Writes the bundle of a compiled case, whole or not at all. WriteError."""
    case = kernel.case
    buffers = case.buffers()
    payloads: dict[str, bytes] = {
        "kernel.ptx": kernel.ptx.encode(),
        "kernel.cubin": kernel.cubin,
        "launch.toml": launch_toml(kernel).encode(),
    }
    expected = case.expect(buffers)
    for name, array in buffers.items():
        payloads[f"{name}.npy"] = _npy(array)
    for name, output in expected.items():
        payloads[f"{name}.expected.npy"] = _npy(output.value)
        bound = np.broadcast_to(np.asarray(output.bound, np.float64), output.value.shape)
        payloads[f"{name}.bound.npy"] = _npy(bound)
    about = {
        "name": case.name,
        "outputs": list(expected),
        "bits_defined": not (case.approximate or case.unordered),
        "approximate": list(case.approximate),
        "unordered": case.unordered,
        "flaw": case.flaw,
        "compiler": f"triton {triton.__version__}",
        "ptxas_options": PTXAS_OPTIONS,
    }
    payloads["case.json"] = (json.dumps(about, indent=1) + "\n").encode()
    write_files(folder, payloads)


def launch_toml(kernel: Compiled) -> str:
    """The launch file of a compiled case. All that is written in its words is written here."""
    return "\n".join(_lines(kernel)) + "\n"


def _lines(kernel: Compiled) -> Iterator[str]:
    yield f'kernel = "{kernel.entry}"'
    yield f"grid = {list(kernel.grid)}  # CTAs"
    yield f"block = {list(kernel.block)}"
    yield f"cluster = {list(kernel.cluster)}"
    yield f"dynamic_shared = {kernel.shared}"
    outputs = kernel.case.expect(kernel.case.buffers())
    yield from ("", "[buffers]")
    for name, array in kernel.case.buffers().items():
        output = f', output = "{name}.out.npy", access = "readwrite"' if name in outputs else ""
        shape = list(array.shape)
        dtype = _NAMES[array.dtype]
        yield f'{name} = {{ file = "{name}.npy", dtype = "{dtype}", shape = {shape}{output} }}'
    if kernel.scratch:
        yield f'global_scratch = {{ bytes = {kernel.scratch}, access = "readwrite" }}'
    for (declared, _), parameter in zip(kernel.declared, kernel.parameters, strict=True):
        yield from ("", "[[arguments]]", f'name = "{declared}"  # {parameter.name}')
        yield from _argument(parameter)
    for parameter in kernel.parameters:
        if parameter.tensor_map:
            yield from ("", "[[tensor_maps]]", f'name = "{parameter.name}"')
            yield from _tensor_map(parameter.tensor_map)


def _argument(parameter: Parameter) -> Iterator[str]:
    if parameter.tensor_map is not None:
        yield f'tensor_map = "{parameter.name}"'
    elif parameter.buffer is not None:
        yield f'buffer = "{parameter.buffer}"'
    else:
        yield f'type = "{parameter.type}"'
        yield f"value = {parameter.value!r}"


def _tensor_map(tensor_map: TensorMap) -> Iterator[str]:
    """In the order of cuTensorMapEncodeTiled: the innermost dimension first."""
    yield f'buffer = "{tensor_map.buffer}"'
    yield f'dtype = "{tensor_map.dtype}"'
    yield f"dims = {list(tensor_map.dims)}"
    yield f"strides = {list(tensor_map.strides)}  # bytes, from the second dimension on"
    yield f"box = {list(tensor_map.box)}"
    yield f"element_strides = {list(tensor_map.element_strides)}"
    for word in ("interleave", "swizzle", "l2", "fill"):
        yield f'{word} = "{getattr(tensor_map, word)}"'


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    """A .npy file; formats that numpy lacks as the bits of their elements."""
    if array.dtype.kind not in "iuf" or array.dtype not in map(np.dtype, "bBhHiIlLefd"):
        array = array.view(f"u{array.itemsize}")
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def main(folder: Path, names: list[str]) -> None:
    known = {case.name: case for case in CASES}
    for name in names or known:
        if name not in known:
            raise SystemExit(f"no case {name}; there are {', '.join(known)}")
        write_bundle(compiled(known[name]), folder / name)
        print(folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

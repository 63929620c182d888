"""Runs bundles of compilers' kernels on a Hopper GPU, judges them, and keeps the bits.

    python tests/compilers/bundle.py FOLDER          # where Triton is; no GPU
    python tests/gpu/run_bundles.py FOLDER --out OUT [--repeat N] [CASE …]    # where the GPU is

Needs cuda-bindings and neither torch nor a compiler. Writes OUT/bits.npz, an array of bits
(unsigned integers) a case and output, named CASE/OUTPUT, of the first run; and OUT/report.json.
Prints a line a case: elements outside of the bound, the greatest part of the bound that an error
takes, and in how many of the N runs the bits were those of the first. Ends with 1 where an element
is outside of its bound, or where bits that are defined differ between two runs.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent / "compilers")]

from judging import Bundle, bits, judged, passed  # noqa: E402

from mlagen.emulator.launching.scalars import DTYPES  # noqa: E402
from mlagen.errors import MlagenError  # noqa: E402
from mlagen.launch.cuda_driver import CudaDevice, CudaDriver  # noqa: E402

TENSOR_MAP_BYTES, TENSOR_MAP_ALIGN = 128, 64
# The driver's names of what launch files say.
MAP_TYPES = {
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "i32": "int32", "u64": "uint64",
    "i64": "int64", "f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16",
    "f32_ftz": "float32_ftz", "tf32": "tfloat32", "tf32_ftz": "tfloat32_ftz",
}  # fmt: skip
FILLS = {"zeros": "none", "nan": "nan_request_zero_fma"}


class Runner:
    """Launches of bundles on one GPU."""

    def __init__(self, driver: CudaDriver, device: CudaDevice) -> None:
        self.driver, self.device, self.api = driver, device, driver.api

    def run(self, bundle: Bundle) -> dict[str, np.ndarray]:
        """The outputs after one launch on fresh buffers. LaunchFailed."""
        call = self.driver.call
        cubin = (bundle.folder / "kernel.cubin").read_bytes()
        with self.driver.current(self.device), self._memory(bundle) as places:
            module = call("cuModuleLoadData", cubin)
            try:
                function = call("cuModuleGetFunction", module, bundle.launch["kernel"].encode())
                self._launch(bundle, function, places)
                call("cuCtxSynchronize")
                return {name: self._read(bundle, name, places) for name in bundle.about["outputs"]}
            finally:
                self.api.cuModuleUnload(module)

    @contextmanager
    def _memory(self, bundle: Bundle) -> Iterator[dict[str, int]]:
        """Every buffer in the GPU's memory: its address."""
        places: dict[str, int] = {}
        try:
            for name, array in bundle.buffers.items():
                places[name] = int(self.driver.call("cuMemAlloc", array.nbytes))
                self.driver.call("cuMemcpyHtoD", places[name], array.ctypes.data, array.nbytes)
            yield places
        finally:
            for place in places.values():
                self.api.cuMemFree(place)

    def _launch(self, bundle: Bundle, function: Any, places: dict[str, int]) -> None:
        api, launch = self.api, bundle.launch
        which = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.driver.call("cuFuncSetAttribute", function, which, launch["dynamic_shared"])
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch["grid"]
        config.blockDimX, config.blockDimY, config.blockDimZ = launch["block"]
        config.sharedMemBytes = launch["dynamic_shared"]
        if launch["cluster"] != [1, 1, 1]:
            attribute = api.CUlaunchAttribute()
            attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            cluster = attribute.value.clusterDim
            cluster.x, cluster.y, cluster.z = launch["cluster"]
            config.attrs, config.numAttrs = [attribute], 1
        arguments = [self._argument(bundle, told, places) for told in launch["arguments"]]
        # Each argument at a multiple of what a tensor map needs.
        step = TENSOR_MAP_BYTES
        memory = ctypes.create_string_buffer(step * len(arguments) + TENSOR_MAP_ALIGN)
        first = -(-ctypes.addressof(memory) // TENSOR_MAP_ALIGN) * TENSOR_MAP_ALIGN
        at = [first + step * i for i in range(len(arguments))]
        for place, data in zip(at, arguments, strict=True):
            ctypes.memmove(place, data, len(data))
        held = (ctypes.c_void_p * len(at))(*at)
        self.driver.call("cuLaunchKernelEx", config, function, ctypes.addressof(held), 0)

    def _argument(self, bundle: Bundle, told: dict[str, Any], places: dict[str, int]) -> bytes:
        if "tensor_map" in told:
            maps = {table["name"]: table for table in bundle.launch["tensor_maps"]}
            return self._tensor_map(maps[told["tensor_map"]], places)
        if "buffer" in told:
            return places[told["buffer"]].to_bytes(8, "little")
        return np.array(told["value"], DTYPES[told["type"]]).tobytes()

    def _tensor_map(self, told: dict[str, Any], places: dict[str, int]) -> bytes:
        api = self.api

        def word(kind: str, prefix: str, name: str) -> Any:
            return getattr(getattr(api, kind), f"CU_TENSOR_MAP_{prefix}{name.upper()}")

        promotion = told["l2"]
        encoded = self.driver.call(
            "cuTensorMapEncodeTiled",
            word("CUtensorMapDataType", "DATA_TYPE_", MAP_TYPES[told["dtype"]]),
            len(told["dims"]),
            places[told["buffer"]],
            [api.cuuint64_t(n) for n in told["dims"]],
            [api.cuuint64_t(n) for n in told["strides"] or [0]],  # of one dimension: none is read
            [api.cuuint32_t(n) for n in told["box"]],
            [api.cuuint32_t(n) for n in told["element_strides"]],
            word("CUtensorMapInterleave", "INTERLEAVE_", told["interleave"]),
            word("CUtensorMapSwizzle", "SWIZZLE_", told["swizzle"]),
            word(
                "CUtensorMapL2promotion",
                "L2_PROMOTION_",
                promotion if promotion == "none" else f"L2_{promotion}",
            ),
            word("CUtensorMapFloatOOBfill", "FLOAT_OOB_FILL_", FILLS[told["fill"]]),
        )
        return ctypes.string_at(int(encoded.getPtr()), TENSOR_MAP_BYTES)

    def _read(self, bundle: Bundle, name: str, places: dict[str, int]) -> np.ndarray:
        array = np.empty_like(bundle.buffers[name])
        self.driver.call("cuMemcpyDtoH", array.ctypes.data, places[name], array.nbytes)
        return array


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("cases", nargs="*")
    told = parser.parse_args()
    names = told.cases or sorted(path.parent.name for path in told.folder.glob("*/launch.toml"))
    driver = CudaDriver.load()
    runner = Runner(driver, driver.device(0))
    kept: dict[str, np.ndarray] = {}
    reports: dict[str, Any] = {}
    refused: list[str] = []
    for name in names:
        bundle = Bundle.read(told.folder / name)
        print(name, end=" ", flush=True)  # a kernel that hangs is named
        try:
            runs = [runner.run(bundle) for _ in range(told.repeat)]
        except MlagenError as error:
            print("FAILED", error, flush=True)
            refused.append(name)
            continue
        reports[name] = judged(bundle, runs)
        kept |= {f"{name}/{output}": bits(array) for output, array in runs[0].items()}
        print("passed" if passed(reports[name]) else "FAILED", reports[name]["outputs"], flush=True)
        told.out.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(told.out / "bits.npz", **kept)
        about = {"device": runner.device.name, "driver": driver.version_text, "cases": reports}
        (told.out / "report.json").write_text(json.dumps(about, indent=1) + "\n")
    wrong = [*refused, *(name for name, report in reports.items() if not passed(report))]
    print(f"{len(names) - len(wrong)} of {len(names)} passed on {runner.device.name}", *wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

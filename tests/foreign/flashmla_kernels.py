"""FlashMLA's kernels on the PTX emulator: their launches, from what their host code passes.

The folder has, beside each kernel's text, NAME.launch.json with the grid, the block, the bytes of
each parameter and the tensor maps of one small problem. A pointer k << 32 there is buffer k here.
"""

import json
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from ptx_verdicts import VARIABLE

from mlagen.emulator import Argument, Buffer, Launch, Settings, TensorMap, emulate
from mlagen.emulator.ptx.host.entries import parameter_places
from mlagen.ptx import read_ptx

(
    Q, KV, INDICES, TABLE, LENGTHS, OUT, MAX_LOGITS, LSE, LSE_PARTS, OUT_PARTS, SCHEDULE, SPLITS,
    SINK,
) = range(1, 14)  # fmt: skip
NAMES = (
    "", "q", "kv", "indices", "table", "lengths", "out", "max_logits", "lse", "lse_parts",
    "out_parts", "schedule", "splits", "sink",
)  # fmt: skip
WRITTEN = frozenset((OUT, MAX_LOGITS, LSE, LSE_PARTS, OUT_PARTS, SCHEDULE, SPLITS))

# Byte offsets in the first parameter, by kernel: what a problem changes.
SCHEDULER = {"topk": 16, "lengths": 40, "parts": 64}
COMBINE = {
    "heads": 8, "lse_b": 32, "lse_s": 36, "out_b": 40, "out_s": 44, "out_h": 48, "parts_lse": 72,
    "parts_lse_s": 76, "parts_out": 80, "parts_out_s": 84, "parts_out_h": 88, "parts": 112,
    "sink": 120,
}  # fmt: skip
PREFILL = {"scale": 28, "sink": 64}
SPARSE = {"scale": 24, "topk": 40, "sink": 80, "per_request": 164, "per_query": 168, "parts": 272}
DENSE = {"scale": 40, "table": 160, "parts": 192, "total_splits": 208}
POINTERS = frozenset(("sink", "lengths"))
MAP_TYPES = {9: "bf16"}
SWIZZLES = {0: "none", 3: "128B"}


def folder():
    """Where the kernels are, or a skip that says what is missing."""
    named = os.environ.get(VARIABLE)
    if not named:
        pytest.skip(f"{VARIABLE} names no folder with FlashMLA's kernels as PTX")
    return Path(named)


@dataclass
class Given:
    """A kernel with the bytes of its parameters: `fields` names offsets in the first one."""

    name: str
    fields: dict
    entry: str = ""
    grid: tuple = ()
    told: dict = field(default_factory=dict)
    parameters: list = field(default_factory=list)

    def __post_init__(self):
        path = folder() / f"{self.name}.launch.json"
        if not path.is_file():
            pytest.skip(f"{VARIABLE}: {path} is missing")
        self.told = json.loads(path.read_text())
        self.parameters = [bytearray.fromhex(text) for text in self.told["params"]]

    def set(self, **values):
        """Change fields: a pointer's value is the number of a buffer, 0 for none."""
        for name, value in values.items():
            at = self.fields[name]
            if name in POINTERS:
                struct.pack_into("<Q", self.parameters[0], at, value << 32)
            else:
                struct.pack_into("<i", self.parameters[0], at, value)
        return self

    @property
    def scale(self):
        """What scores are multiplied with."""
        return struct.unpack_from("<f", self.parameters[0], self.fields["scale"])[0]

    def text(self):
        """The PTX, or a skip."""
        path = folder() / f"{self.name}.ptx"
        if not path.is_file():
            pytest.skip(f"{VARIABLE}: {path} is missing")
        return path.read_text()

    def arguments(self, places, buffers):
        """The parameters' bytes, eight at a time, and the tensor maps between them."""
        maps = {tuple(told["map_at"]): told for told in self.told["maps"]}
        for index, place in enumerate(places):
            data, at = self.parameters[index], 0
            while at < len(data):
                if (index, at) in maps:
                    yield Argument(place + at, tensor_map(maps[index, at], buffers))
                    at += 128
                else:
                    yield Argument(place + at, np.uint64(struct.unpack_from("<Q", data, at)[0]))
                    at += 8


def tensor_map(told, buffers):
    """A map of the host code's, of the buffer at its base."""
    return TensorMap(
        buffers[int(str(told["base"]), 0) >> 32],
        MAP_TYPES[told["type"]],
        tuple(told["dims"]),
        tuple(told["strides"]),
        tuple(told["box"]),
        tuple(told["element_strides"]),
        swizzle=SWIZZLES[told["swizzle"]],
    )


def run(given, arrays, **settings):
    """One launch. `arrays`: by the numbers above; those of WRITTEN are written."""
    module = read_ptx(given.text())
    entry = next(entry for entry in module.entries if given.entry in entry.name)
    places, _ = parameter_places(entry)
    buffers = {
        k: Buffer(NAMES[k], array, "readwrite" if k in WRITTEN else "read", k << 32)
        for k, array in arrays.items()
    }
    launch = Launch(
        given.grid or tuple(given.told["grid"]),
        tuple(given.told["block"]),
        list(given.arguments([places[p.name] for p in entry.parameters], buffers)),
        buffers=list(buffers.values()),
        kernel=entry.name,
        cluster=tuple(given.told["cluster"]),
        dynamic_shared=given.told["dynamic_shared"],
    )
    return emulate(module, launch, Settings(**settings))

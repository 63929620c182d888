"""Words of Hopper's tensor core and of its approximate functions, measured for the emulator.

    python benchmarks/hopper_words.py OUT [--tiles 8192] [--only tensor|approx]

Needs a Hopper GPU, cuda-bindings and a ptxas; takes about a minute. It writes into the folder OUT
at most 8 files of at most 15 MiB: `report.json`, and `words_N.npz`, whose arrays are bytes packed
with bz2 (`unpacked` of `hopper_arithmetic.packing` reads them).

Tensor core: for each set of inputs of `hopper_arithmetic.inputs` and each instruction,
the outputs of the first tiles and a sha256 for every 128 tiles. wgmma reads A from registers and
from shared memory, which must agree. Approximate functions: a digest of each 2^16 inputs out of all
2^32, a sample of 2^16, and each output of the ranges that make up the function.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from hopper_arithmetic.inputs import INPUT_SETS, InputSet, drawn  # noqa: E402
from hopper_arithmetic.packing import packed, smooth  # noqa: E402

from mlagen.launch.cuda_driver import CudaDriver  # noqa: E402
from mlagen.targets.nvidia.ptxas import assemble_ptx, find_ptxas  # noqa: E402

SCHEMA = "mlagen.benchmark.hopper_words/1"
KEPT_TILES, DIGEST_TILES = 64, 128
FILE_BYTES, FILES = 15 << 20, 7
SAMPLES = 1 << 16
HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
LATER_HEAD = HEAD.replace("8.0", "8.7")  # e4m3 with f16 sums in mma.sync


# Tensor core: one tile of 64 x 8 a block of 128 threads. Each thread reads its fragments, which lie
# alike in all formats: a row of A or B is 32 bytes.
TILE = """.visible .entry words(.param .u64 p_a, .param .u64 p_b, .param .u64 p_c, .param .u64 p_d,
    .param .u64 p_desc_a, .param .u64 p_desc_b, .param .u32 p_scale)
{{
.reg .pred %keep, %first;
.reg .b32 %t, %row, %lane, %tile, %g, %q, %x, %y, %scale, %a<4>, %b<2>, %w<4>;
.reg .b64 %pa, %pb, %pc, %pd, %off, %da, %db, %sa, %sb;
.reg {register} %d<4>;
.shared .align 128 .b8 smem[2304];
mov.u32 %t, %tid.x;
mov.u32 %tile, %ctaid.x;
ld.param.u64 %pa, [p_a];
ld.param.u64 %pb, [p_b];
ld.param.u64 %pc, [p_c];
ld.param.u64 %pd, [p_d];
ld.param.u64 %da, [p_desc_a];
ld.param.u64 %db, [p_desc_b];
ld.param.u32 %scale, [p_scale];
setp.ne.u32 %keep, %scale, 0;
mul.wide.u32 %off, %tile, 2048;
add.u64 %pa, %pa, %off;
mul.wide.u32 %off, %tile, 256;
add.u64 %pb, %pb, %off;
mul.wide.u32 %off, %tile, {c_tile};
add.u64 %pc, %pc, %off;
add.u64 %pd, %pd, %off;
and.b32 %lane, %t, 31;
shr.u32 %g, %lane, 2;
and.b32 %q, %lane, 3;
shr.u32 %row, %t, 5;
mad.lo.u32 %row, %row, 16, %g;
mul.wide.u32 %off, %row, {c_row};
add.u64 %pc, %pc, %off;
add.u64 %pd, %pd, %off;
mul.wide.u32 %off, %q, {c_pair};
add.u64 %pc, %pc, %off;
add.u64 %pd, %pd, %off;
{load_c}
{body}
{store_d}
ret;
}}
"""
FRAGMENT_A = """mul.wide.u32 %off, %row, 32;
add.u64 %sa, %pa, %off;
mul.wide.u32 %off, %q, 4;
add.u64 %sa, %sa, %off;
ld.global.b32 %a0, [%sa];
ld.global.b32 %a1, [%sa+256];
ld.global.b32 %a2, [%sa+16];
ld.global.b32 %a3, [%sa+272];"""
FRAGMENT_B = """mul.wide.u32 %off, %g, 32;
add.u64 %sb, %pb, %off;
mul.wide.u32 %off, %q, 4;
add.u64 %sb, %sb, %off;
ld.global.b32 %b0, [%sb];
ld.global.b32 %b1, [%sb+16];"""
# Core matrices of 8 rows of 16 bytes: A's at (half * 8 + rows of eight) * 128, B's at half * 128.
STAGE = """mul.wide.u32 %off, %t, 16;
add.u64 %sa, %pa, %off;
ld.global.v4.b32 {{%w0,%w1,%w2,%w3}}, [%sa];
shr.u32 %x, %t, 1;
and.b32 %y, %t, 1;
shr.u32 %g, %x, 3;
mad.lo.u32 %g, %y, 8, %g;
and.b32 %x, %x, 7;
mad.lo.u32 %x, %g, 8, %x;
mul.lo.u32 %x, %x, 16;
mov.u32 %g, smem;
add.u32 %x, %x, %g;
st.shared.v4.b32 [%x], {{%w0,%w1,%w2,%w3}};
setp.lt.u32 %first, %t, 16;
add.u64 %sb, %pb, %off;
@%first ld.global.v4.b32 {{%w0,%w1,%w2,%w3}}, [%sb];
shr.u32 %x, %t, 1;
mad.lo.u32 %x, %y, 8, %x;
mul.lo.u32 %x, %x, 16;
add.u32 %x, %x, %g;
@%first st.shared.v4.b32 [%x+2048], {{%w0,%w1,%w2,%w3}};
fence.proxy.async.shared::cta;
bar.sync 0;
shr.u32 %x, %g, 4;
cvt.u64.u32 %off, %x;
or.b64 %da, %da, %off;
add.u32 %x, %g, 2048;
shr.u32 %x, %x, 4;
cvt.u64.u32 %off, %x;
or.b64 %db, %db, %off;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.{shape}.{types} {d}, {a}, %db, %keep{tail};
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;"""
FOUR, TWO = "{%d0,%d1,%d2,%d3}", "{%d0,%d1}"


def tile_ptx(kinds: InputSet, kind: str) -> str:
    """PTX for a set of inputs. `kind`: shared, registers (both wgmma), mma, half (mma over the
    first half of k), saturated (integers, mma)."""
    small = kinds.c == "f16"
    typed = {"f32": ".f32", "f16": ".b32", "s32": ".b32"}[kinds.c]
    d = TWO if small else FOUR
    if small:
        c_load = "ld.global.b32 %d0, [%pc];\nld.global.b32 %d1, [%pc+128];"
        d_store = "st.global.b32 [%pd], %d0;\nst.global.b32 [%pd+128], %d1;"
    else:
        pair = f".v2{typed}"
        c_load = f"ld.global{pair} {{%d0,%d1}}, [%pc];\nld.global{pair} {{%d2,%d3}}, [%pc+256];"
        d_store = f"st.global{pair} [%pd], {{%d0,%d1}};\nst.global{pair} [%pd+256], {{%d2,%d3}};"
    if kind in ("shared", "registers"):
        sixteen = kinds.a in ("f16", "bf16")
        trans = "" if not sixteen else (", 0, 0" if kind == "shared" else ", 0")
        tail = "" if kinds.integer else f", 1, 1{trans}"
        a = "%da" if kind == "shared" else "{%a0,%a1,%a2,%a3}"
        types = f"{kinds.c}.{kinds.a}.{kinds.b}"
        body = STAGE.format(shape=f"m64n8k{kinds.k}", types=types, d=d, a=a, tail=tail)
        body = (FRAGMENT_A + "\n" + body) if kind == "registers" else body
    else:
        half = kind == "half"
        types = f"{kinds.c}.{kinds.a}.{kinds.b}.{kinds.c}"
        sat = ".satfinite" if kind == "saturated" else ""
        a, b = ("{%a0,%a1}", "{%b0}") if half else ("{%a0,%a1,%a2,%a3}", "{%b0,%b1}")
        shape = f"m16n8k{kinds.k // 2 if half else kinds.k}"
        body = (
            f"{FRAGMENT_A}\n{FRAGMENT_B}\n"
            f"mma.sync.aligned.{shape}.row.col{sat}.{types} {d}, {a}, {b}, {d};"
        )
    return LATER_HEAD + TILE.format(
        register=typed, c_tile=1024 if small else 2048, c_row=16 if small else 32,
        c_pair=4 if small else 8, load_c=c_load, store_d=d_store, body=body,
    )  # fmt: skip


# Approximate functions: `blocks` adds up a hash of (input, output) for each 2^16 inputs; `map`
# gives each output.
BLOCKS = """.visible .entry words(.param .u64 p_out)
{{
.reg .pred %more;
.reg .b32 %x, %y, %t, %block;
.reg .f32 %fx, %fy;
.reg .b64 %z, %s, %sum, %out, %hi;
mov.u32 %t, %tid.x;
mov.u32 %block, %ctaid.x;
shl.b32 %x, %block, 16;
or.b32 %x, %x, %t;
mov.u64 %sum, 0;
mov.u32 %t, 256;
again:
mov.b32 %fx, %x;
{op}.f32 %fy, %fx;
mov.b32 %y, %fy;
mov.b64 %z, {{%y, %x}};
shr.u64 %s, %z, 30;
xor.b64 %z, %z, %s;
mul.lo.u64 %z, %z, 0xBF58476D1CE4E5B9;
shr.u64 %s, %z, 27;
xor.b64 %z, %z, %s;
mul.lo.u64 %z, %z, 0x94D049BB133111EB;
shr.u64 %s, %z, 31;
xor.b64 %z, %z, %s;
add.u64 %sum, %sum, %z;
add.u32 %x, %x, 256;
sub.u32 %t, %t, 1;
setp.ne.u32 %more, %t, 0;
@%more bra again;
ld.param.u64 %out, [p_out];
mul.wide.u32 %hi, %block, 8;
add.u64 %out, %out, %hi;
red.global.add.u64 [%out], %sum;
ret;
}}
"""
MAP = """.visible .entry words(.param .u64 p_in, .param .u64 p_more, .param .u64 p_out)
{{
.reg .b32 %i, %t;
.reg .b64 %in, %more, %out, %off;
.reg {register} %x, %y, %z;
mov.u32 %t, %tid.x;
mov.u32 %i, %ctaid.x;
mad.lo.u32 %i, %i, 256, %t;
ld.param.u64 %in, [p_in];
ld.param.u64 %more, [p_more];
ld.param.u64 %out, [p_out];
mul.wide.u32 %off, %i, 4;
add.u64 %in, %in, %off;
add.u64 %more, %more, %off;
add.u64 %out, %out, %off;
ld.global{register} %x, [%in];
ld.global{register} %z, [%more];
{op};
st.global{register} [%out], %y;
ret;
}}
"""
UNARY = (
    "ex2.approx.ftz", "ex2.approx", "lg2.approx.ftz", "lg2.approx", "rcp.approx.ftz", "rcp.approx",
    "rsqrt.approx.ftz", "rsqrt.approx", "sqrt.approx.ftz", "sqrt.approx", "tanh.approx",
    "sin.approx.ftz", "sin.approx", "cos.approx.ftz", "cos.approx",
)  # fmt: skip
BINARY = ("div.approx.ftz", "div.approx", "div.full.ftz", "div.full")
PACKED_HALVES = (
    "ex2.approx.f16x2", "ex2.approx.ftz.bf16x2", "tanh.approx.f16x2", "tanh.approx.bf16x2"
)  # fmt: skip
# What makes up each function, most wanted first: exponent fields (bit 8: negative) whose 2^23
# mantissas are measured.
RANGES: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("rcp.approx.ftz", (127,)),
    ("rsqrt.approx.ftz", (127, 128)),
    ("sqrt.approx.ftz", (127, 128)),
    ("ex2.approx.ftz", (127, 126, 125, 256 + 127, 256 + 126, 124, 123, 122, 121, 120, 128, 133)),
    ("lg2.approx.ftz", (127, 126, 125, 128, 129, 160)),
    ("tanh.approx", tuple(range(131, 111, -1))),
    ("sin.approx.ftz", tuple(range(132, 112, -1))),
    ("cos.approx.ftz", tuple(range(132, 112, -1))),
)


@dataclass(slots=True)
class Gpu:
    """The one GPU, its memory and its kernels."""

    driver: Any
    device: Any
    tool: Any
    functions: dict[str, Any] = field(default_factory=dict)

    def assemble(self, texts: dict[str, str]) -> dict[str, str]:
        """Makes and loads kernels; returns those that ptxas refuses, with its words."""

        def one(item: tuple[str, str]) -> bytes | str:
            try:
                made = assemble_ptx(
                    item[1], file_name="words.ptx", source_lines={}, schedule_file="",
                    toolchain=self.tool,
                )  # fmt: skip
            except Exception as error:
                return f"{type(error).__name__}: {error}"[:500]
            return made.cubin

        refused = {}
        with ThreadPoolExecutor(16) as pool:
            for (name, _), made in zip(texts.items(), pool.map(one, texts.items()), strict=True):
                if isinstance(made, str):
                    refused[name] = made
                elif self.driver is not None:
                    loaded = self.driver.load_function(self.device, made, "words", 0)
                    self.functions[name] = loaded.handle
        return refused

    @contextmanager
    def memory(self, *sizes: int) -> Iterator[list[int]]:
        places = [self.driver.call("cuMemAlloc", size) for size in sizes]
        try:
            yield [int(place) for place in places]
        finally:
            for place in places:
                self.driver.call("cuMemFree", place)

    def put(self, place: int, data: np.ndarray[Any, Any]) -> None:
        data = np.ascontiguousarray(data)
        self.driver.call("cuMemcpyHtoD", place, data.ctypes.data, data.nbytes)

    def get(self, place: int, data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self.driver.call("cuMemcpyDtoH", data.ctypes.data, place, data.nbytes)
        return data

    def launch(self, name: str, blocks: int, threads: int, *arguments: Any) -> None:
        held = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(one) for one in arguments))
        self.driver.call(
            "cuLaunchKernel", self.functions[name], blocks, 1, 1, threads, 1, 1, 0, 0,
            ctypes.addressof(held), 0,
        )  # fmt: skip
        self.driver.call("cuCtxSynchronize")


def descriptors(leading_first: bool) -> tuple[int, int]:
    """The strides of A's and B's descriptors, no swizzle; `leading_first`: the leading offset goes
    from half to half of k."""
    found = []
    for along_k, along_rows in ((1024, 128), (128, 256)):
        leading, stride = (along_k, along_rows) if leading_first else (along_rows, along_k)
        found.append((leading >> 4) << 16 | (stride >> 4) << 32)
    return found[0], found[1]


@dataclass(slots=True)
class Tensor:
    """Runs the instructions of one set of inputs over its tiles."""

    gpu: Gpu
    kinds: InputSet
    leading_first: bool = True

    def run(self, kind: str, tiles: tuple[Any, Any, Any], scale: int = 1) -> Any:
        a, b, c = tiles
        element = np.uint32 if self.kinds.element_bytes == 4 else f"u{self.kinds.element_bytes}"
        c_type = np.dtype(f"u{self.kinds.c_bytes}")
        a, b, c = a.astype(element), b.astype(element), c.astype(c_type)
        desc_a, desc_b = descriptors(self.leading_first)
        with self.gpu.memory(a.nbytes, b.nbytes, c.nbytes, c.nbytes) as places:
            for place, data in zip(places, (a, b, c), strict=False):
                self.gpu.put(place, data)
            self.gpu.put(places[3], np.full(c.shape, 0xAA, c_type))
            self.gpu.launch(
                f"{self.kinds.name}.{kind}", len(a), 128,
                *(ctypes.c_uint64(place) for place in places),
                ctypes.c_uint64(desc_a), ctypes.c_uint64(desc_b), ctypes.c_uint32(scale),
            )  # fmt: skip
            return self.gpu.get(places[3], np.empty(c.shape, c_type))

    def sane(self) -> str:
        """Whether wgmma's layouts are right, by small whole numbers; tries both descriptors."""
        k, one = self.kinds.k, {"f16": 0x3C00, "bf16": 0x3F80, "tf32": 0x3F800000,
                                "e4m3": 0x38, "e5m2": 0x3C, "s8": 1, "u8": 1}  # fmt: skip
        a = (drawn(99, 0, 64 * k).reshape(1, 64, k) & np.uint64(1)).astype(np.uint32)
        b = (drawn(98, 0, 8 * k).reshape(1, 8, k) & np.uint64(1)).astype(np.uint32)
        c = np.zeros((1, 64, 8), np.uint32)
        truth = np.einsum("tik,tjk->tij", a.astype(float), b.astype(float))
        half = np.einsum(
            "tik,tjk->tij", a[..., : k // 2].astype(float), b[..., : k // 2].astype(float)
        )
        tiles = a * np.uint32(one[self.kinds.a]), b * np.uint32(one[self.kinds.b]), c
        wrong = []
        for kind in KINDS:
            if f"{self.kinds.name}.{kind}" not in self.gpu.functions:
                continue
            for leading_first in (True, False):
                if kind == "shared":
                    self.leading_first = leading_first
                found = self.run(kind, tiles)
                typed = {"f32": np.float32, "f16": np.float16, "s32": np.int32}[self.kinds.c]
                right = bool((found.view(typed) == (half if kind == "half" else truth)).all())
                if right or kind != "shared":
                    break
            if not right:
                wrong.append(kind)
        return ", ".join(wrong)


KINDS = ("shared", "registers", "mma", "half", "saturated")


def kinds_of(kinds: InputSet) -> tuple[str, ...]:
    return KINDS if kinds.integer else KINDS[:-1]


def tensor(gpu: Gpu, tiles: int, keep: Callable[[str, Any], None]) -> dict[str, Any]:
    """Measures all sets; `keep` takes arrays. Returns what the report says of them."""
    said: dict[str, Any] = {}
    for kinds in INPUT_SETS:
        lab = Tensor(gpu, kinds)
        here: dict[str, Any] = {"wrong": lab.sane(), "leading_first": lab.leading_first}
        said[kinds.name] = here
        inputs = kinds.tiles(0, tiles)
        hashes = hashlib.sha256()
        for words in inputs:
            hashes.update(np.ascontiguousarray(words[:DIGEST_TILES]).tobytes())
        here["inputs_sha256"] = hashes.hexdigest()
        outputs = {}
        for kind in kinds_of(kinds):
            if f"{kinds.name}.{kind}" in gpu.functions:
                outputs[kind] = lab.run(kind, inputs)
        few = tuple(words[:DIGEST_TILES] for words in inputs)
        if not kinds.integer:
            outputs["no c"] = lab.run("shared", few, scale=0)
            outputs["no c registers"] = lab.run("registers", few, scale=0)
        for one, other in (("registers", "shared"), ("no c registers", "no c")):
            if one in outputs:
                differ = outputs[one] != outputs[other]
                here[f"{one} differ from {other}"] = int(differ.sum())
                if not differ.any():
                    del outputs[one]
        if "mma" in outputs:
            here["mma differs from shared"] = int((outputs["mma"] != outputs["shared"]).sum())
            if here["mma differs from shared"] == 0:
                del outputs["mma"]
        for kind, words in outputs.items():
            keep(f"tensor/{kinds.name}/{kind}", words[:KEPT_TILES])
            here[kind] = [
                hashlib.sha256(words[at : at + DIGEST_TILES].tobytes()).hexdigest()
                for at in range(0, len(words), DIGEST_TILES)
            ]
    return said


def mapped(gpu: Gpu, name: str, words: Any, more: Any = None) -> Any:
    """Outputs of a function over 32-bit words, a multiple of 256 of them."""
    more = words if more is None else more
    with gpu.memory(*[words.nbytes] * 3) as places:
        gpu.put(places[0], words)
        gpu.put(places[1], more)
        gpu.launch(name, len(words) // 256, 256, *(ctypes.c_uint64(place) for place in places))
        return gpu.get(places[2], np.empty(len(words), np.uint32))


def approx(gpu: Gpu, tiles: int, keep: Callable[[str, Any], None]) -> dict[str, Any]:
    """Measures all approximate functions; `keep` takes arrays. `tiles` does not matter."""
    samples = (drawn(77, 0, SAMPLES) >> np.uint64(32)).astype(np.uint32)
    others = (drawn(78, 0, SAMPLES) >> np.uint64(32)).astype(np.uint32)
    for op in UNARY:
        keep(f"sample/{op}", mapped(gpu, f"map {op}", samples))
    for op in BINARY:
        keep(f"sample/{op}", mapped(gpu, f"map {op}", samples, others))
    twice = np.arange(1 << 16, dtype=np.uint32) * np.uint32(0x10001)
    for op in PACKED_HALVES:
        found = mapped(gpu, f"map {op}", twice)
        alike = (found >> np.uint32(16) == (found & np.uint32(0xFFFF))).all()
        keep(f"all/{op}", found.astype(np.uint16) if alike else found)
    for op in UNARY:
        with gpu.memory(8 << 16) as (place,):
            gpu.put(place, np.zeros(1 << 16, np.uint64))
            gpu.launch(f"blocks {op}", 1 << 16, 256, ctypes.c_uint64(place))
            sums = gpu.get(place, np.empty(1 << 16, np.uint64))
            keep(f"blocks/{op}", sums if "ftz" in op or op == "tanh.approx" else coarse(sums))
    for op, fields in RANGES:
        for exponent in fields:
            words = np.arange(1 << 23, dtype=np.uint32) + np.uint32(exponent << 23)
            found = mapped(gpu, f"map {op}", words)
            keep(f"range/{op}/{exponent}", found)
    return {"samples": SAMPLES, "ranges": sum(len(fields) for _, fields in RANGES)}


def coarse(sums: Any) -> Any:
    """One digest for each 2^23 inputs: they are sums."""
    return sums.reshape(512, -1).sum(axis=1, dtype=np.uint64)


def texts(only: str | None) -> dict[str, str]:
    """All kernels by name."""
    found = {}
    if only != "approx":
        for kinds in INPUT_SETS:
            for kind in kinds_of(kinds):
                found[f"{kinds.name}.{kind}"] = tile_ptx(kinds, kind)
    if only != "tensor":
        for op in UNARY:
            found[f"blocks {op}"] = HEAD + BLOCKS.format(op=op)
            found[f"map {op}"] = HEAD + MAP.format(register=".f32", op=f"{op}.f32 %y, %x")
        for op in BINARY:
            found[f"map {op}"] = HEAD + MAP.format(register=".f32", op=f"{op}.f32 %y, %x, %z")
        for op in PACKED_HALVES:
            found[f"map {op}"] = HEAD + MAP.format(register=".b32", op=f"{op} %y, %x")
    return found


def squeezed(item: tuple[str, Any]) -> Any:
    name, words = item
    return packed(smooth(words) if name.startswith("range/") else words)


def write(folder: Path, kept: dict[str, Any], report: dict[str, Any]) -> None:
    """Packs in threads and writes files; what does not fit is left out and named."""
    began = time.perf_counter()
    with ThreadPoolExecutor(16) as pool:
        done = dict(zip(kept, pool.map(squeezed, kept.items()), strict=True))
    files: list[dict[str, Any]] = [{} for _ in range(FILES)]
    room = [FILE_BYTES] * FILES
    total = 4 * FILE_BYTES - (1 << 20)
    for name, data in done.items():
        where = next((i for i, left in enumerate(room) if data.nbytes + 400 < left), None)
        if where is None or data.nbytes > total:
            report["left_out"].append(name)
            continue
        files[where][name] = data
        room[where] -= data.nbytes + 400
        total -= data.nbytes + 400
    for index, arrays in enumerate(files):
        if arrays:
            np.savez(folder / f"words_{index}.npz", **arrays)
    report["packed_bytes"] = {name: data.nbytes for name, data in done.items()}
    report["seconds"]["pack"] = time.perf_counter() - began
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--tiles", type=int, default=8192)
    parser.add_argument("--only", choices=("tensor", "approx"))
    parser.add_argument("--assemble", action="store_true", help="stop after ptxas; needs no GPU")
    options = parser.parse_args()
    began = time.perf_counter()
    tool = find_ptxas("sm_90a")
    if options.assemble:
        refused = Gpu(None, None, tool).assemble(texts(options.only))
        print(json.dumps(refused, indent=1))
        return bool(refused)
    if options.out is None:
        parser.error("OUT is missing")
    options.out.mkdir(parents=True, exist_ok=True)
    driver = CudaDriver.load()
    gpu = Gpu(driver, driver.device(0), tool)
    report: dict[str, Any] = {
        "schema": SCHEMA, "device": gpu.device.name, "driver": driver.version_text,
        "ptxas": tool.version, "tiles": options.tiles, "left_out": [], "seconds": {},
    }  # fmt: skip
    kept: dict[str, Any] = {}
    with driver.current(gpu.device):
        report["refused"] = gpu.assemble(texts(options.only))
        report["seconds"]["assemble"] = time.perf_counter() - began
        for name, measure in (("approx", approx), ("tensor", tensor)):
            if options.only in (None, name):
                try:
                    report[name] = measure(gpu, options.tiles, kept.__setitem__)
                except Exception:  # what there is already is written
                    report[f"{name}_failed"] = traceback.format_exc()
                report["seconds"][name] = time.perf_counter() - began
    write(options.out, kept, report)
    long = ("tensor", "packed_bytes")
    print(json.dumps({name: said for name, said in report.items() if name not in long}, indent=1))
    for name, found in report.get("tensor", {}).items():
        print(name, {key: value for key, value in found.items() if not isinstance(value, list)})
    return int("approx_failed" in report or "tensor_failed" in report)


if __name__ == "__main__":
    raise SystemExit(main())

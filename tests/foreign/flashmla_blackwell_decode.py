"""FlashMLA's sparse decode for sm_100a on arrays of one request: V3.2 rows (128 heads: two
launches) and 584-byte rows (its kernel for few keys, 128 heads on a CTA pair).

The parameters are the structures that the host code of FlashMLA 9241ae3 passes; the folder has the
text alone. One part has the whole request, so that O is written without its combine.
"""

import struct
from dataclasses import dataclass

import flashmla_kernels as fm
import ml_dtypes
import numpy as np
import pytest
from flashmla_blackwell import tensor
from flashmla_problems import normal, unset
from ptx_verdicts import VARIABLE

from mlagen.emulator import Argument, Buffer, Launch, Settings, TensorMap, emulate
from mlagen.emulator.ptx.host.entries import parameter_places
from mlagen.ptx import read_ptx

BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
VALUES, PAGE, PAGES = 512, 64, 33
WIDTH = {"v32": 576, "model1": 512}
# 584 bytes a row, rows first and then exponents, and the host code wants a multiple of 576 a page.
PAGE_BYTES = {"v32": PAGE * 656, "model1": 65 * 576}
ROW_BYTES = {"v32": 656, "model1": 584}
FILES = {"v32": "sm100_sparse_decode_v32_h64", "model1": "sm100_sparse_decode_small_topk_h128"}
ENTRY = "flash_fwd_splitkv_mla_fp8_sparse_kernel"
SHARED = {"v32": 232192, "model1": 232448}
HEADS = {"v32": 64, "model1": 128}  # of a launch


@dataclass
class Call:
    """One request: q [heads, d_qk], `raw` [pages, bytes] as it is stored, `keys` [rows, d_qk] in
    fp64, whose columns are bf16 numbers, indices [topk], sink [heads]."""

    rows: str
    q: np.ndarray
    raw: np.ndarray
    keys: np.ndarray
    indices: np.ndarray
    sink: np.ndarray

    @property
    def scale(self):
        return np.float32(WIDTH[self.rows] ** -0.5)

    @property
    def cache(self):
        """The pool [pages, page, 1, bytes of a row] in e4m3, as torch's tensor would be."""
        strides = (self.raw.strides[0], ROW_BYTES[self.rows], ROW_BYTES[self.rows], 1)
        shape = (PAGES, PAGE, 1, ROW_BYTES[self.rows])
        return np.lib.stride_tricks.as_strided(self.raw.view(E4M3), shape, strides)


def call_of(rows, heads, topk):
    """Numbers in e4m3 with scales that are powers of two, all places of the list valid."""
    width, block = WIDTH[rows], {"v32": 128, "model1": 64}[rows]
    draw, count = np.random.default_rng(5), PAGES * PAGE
    latent = width - 64
    blocks = latent // block
    quantised = (8 * draw.standard_normal((count, latent))).astype(E4M3)
    powers = draw.integers(-5, -1, (count, blocks))
    rope = normal(6, (count, 64))
    numbers = quantised.astype(np.float64) * np.repeat(2.0**powers, block, axis=1)
    raw = np.zeros((PAGES, PAGE_BYTES[rows]), np.uint8)
    if rows == "v32":
        every = raw.reshape(count, 656)
        every[:, :512] = quantised.view(np.uint8)
        every[:, 512:528] = (2.0**powers).astype(np.float32).view(np.uint8)
        every[:, 528:] = rope.view(np.uint8)
    else:
        for page in range(PAGES):
            own = slice(page * PAGE, (page + 1) * PAGE)
            body = raw[page, : PAGE * 576].reshape(PAGE, 576)
            body[:, :448], body[:, 448:] = quantised[own].view(np.uint8), rope[own].view(np.uint8)
            tail = raw[page, PAGE * 576 : PAGE * 584].reshape(PAGE, 8)
            tail[:, :7] = powers[own] + 127
    return Call(
        rows, normal(7, (heads, width)), raw,
        np.concatenate([numbers, rope.astype(np.float64)], 1),
        draw.permutation(count)[:topk].astype(np.int32),
        draw.standard_normal(heads).astype(np.float32),
    )  # fmt: skip


def parameters(call, heads):
    """SparseAttnDecodeParams, in words of eight bytes."""
    width, topk, pointer = WIDTH[call.rows], len(call.indices), lambda k: k << 32
    model = list(WIDTH).index(call.rows)
    base = 1 / np.log(2)
    row = heads * VALUES
    whole = struct.pack(
        "<6i2f4i", 1, 1, heads, 1, width, VALUES, call.scale, call.scale * base, PAGES, PAGE, topk,
        model,
    )  # fmt: skip
    whole += struct.pack("<5Q", *map(pointer, (fm.Q, fm.KV, fm.INDICES)), 0, pointer(fm.SINK))
    whole += struct.pack("<2Q3i4x3Q", pointer(fm.LSE), pointer(fm.OUT), 0, 0, 0, 0, 0, 0)
    whole += struct.pack(
        "<16i", heads * width, heads * width, width, call.raw.strides[0], ROW_BYTES[call.rows],
        topk, topk, heads, heads, row, row, VALUES, 0, 0, 0, 0,
    )  # fmt: skip
    whole += struct.pack("<3Q", 0, pointer(fm.LSE_PARTS), pointer(fm.OUT_PARTS))
    whole += struct.pack("<5i4x", heads, heads, row, row, VALUES)
    whole += struct.pack("<2Qi4x", pointer(fm.SCHEDULE), pointer(fm.SPLITS), 1)
    return struct.unpack(f"<{len(whole) // 8}Q", whole)


def maps(call, buffers, heads):
    """The second parameter: byte offset → number or map."""
    q, kv, out, parts = (buffers[k] for k in (fm.Q, fm.KV, fm.OUT, fm.OUT_PARTS))
    stored, ones = PAGES * call.raw.strides[0], (1,) * 5
    if call.rows == "v32":
        width = WIDTH["v32"]
        found = {
            128: tensor(q, (width, 64, 1, 1), (64, 64, 1, 1)),
            512: tensor(out, (VALUES, 64, 1, 1), (64, 64, 1, 1), pitch=VALUES),
            768: TensorMap(
                q, "bf16", (32, 64, 2, 1, 1), (2 * width, 64, 2 * 64 * width, 2 * 64 * width),
                (32, 64, 2, 1, 1), ones, swizzle="64B", buffer_offset=2 * VALUES,
            ),
            896: TensorMap(kv, "i64", (64, stored // 656), (656,), (64, 1), (1, 1)),
            1024: TensorMap(
                kv, "bf16", (64, stored // 656), (656,), (32, 1), (1, 1), swizzle="64B",
                buffer_offset=VALUES + 16,
            ),
        }  # fmt: skip
        for at, columns in {0: width, 384: VALUES}.items():
            for i, extent in enumerate((64, columns, 1, 1)):
                found[at + 4 * i] = np.uint32(extent)
        return found
    row = 2 * VALUES
    numbers = TensorMap(kv, "u8", (576, stored // 576), (576,), (256, 1), (1, 1))
    rope = TensorMap(
        kv, "bf16", (64, stored // 576), (576,), (64, 1), (1, 1), swizzle="128B",
        buffer_offset=448,
    )  # fmt: skip
    return {
        0: TensorMap(
            q, "bf16", (64, heads, 2, 4, 1), (row, row // 2, 128, heads * row),
            (64, 64, 2, 4, 1), ones, swizzle="128B",
        ),
        128: TensorMap(
            out, "bf16", (64, heads, 8, 1, 1), (row, 128, heads * row, heads * row),
            (64, 64, 8, 1, 1), ones, swizzle="128B",
        ),
        256: TensorMap(
            parts, "f32", (32, heads, 16, 1, 2), (2 * row, 128, 2 * heads * row, 2 * heads * row),
            (32, 64, 1, 1, 1), ones, swizzle="128B",
        ),
        384: numbers, 512: rope, 640: numbers, 768: rope,
    }  # fmt: skip


def decode(call, **settings):
    """O [heads, 512] of the call, and what each launch did: 64 heads of V3.2 rows, or 128."""
    path = fm.folder() / f"{FILES[call.rows]}.ptx"
    if not path.is_file():
        pytest.skip(f"{VARIABLE}: {path} is missing")
    module = read_ptx(path.read_text())
    entry = next(entry for entry in module.entries if ENTRY in entry.name)
    places, _ = parameter_places(entry)
    first, second = (places[p.name] for p in entry.parameters)
    heads = HEADS[call.rows]
    ctas = heads // 64
    outputs, results = [], []
    for at in range(0, len(call.q), heads):
        own = slice(at, at + heads)
        arrays = {
            fm.Q: call.q[own].copy(), fm.KV: call.raw, fm.INDICES: call.indices,
            fm.SINK: call.sink[own].copy(), fm.OUT: unset((heads, VALUES), BF16),
            fm.LSE: unset((heads,), np.float32), fm.LSE_PARTS: unset((2, heads), np.float32),
            fm.OUT_PARTS: unset((2, heads, VALUES), np.float32),
            fm.SCHEDULE: np.array([[0, 0, 0, len(call.indices) // 64, 0, 0, 0, 0]], np.int32),
            fm.SPLITS: np.array([0, 1], np.int32),
        }  # fmt: skip
        written = (fm.OUT, fm.LSE, fm.LSE_PARTS, fm.OUT_PARTS)
        buffers = {
            k: Buffer(fm.NAMES[k], array, "readwrite" if k in written else "read", k << 32)
            for k, array in arrays.items()
        }
        words = parameters(call, heads)
        given = [Argument(first + 8 * i, np.uint64(word)) for i, word in enumerate(words)]
        made = maps(call, buffers, heads)
        given += [Argument(second + place, value) for place, value in made.items()]
        launch = Launch(
            (ctas, 1, 1), (512 if ctas == 2 else 384, 1, 1), given, kernel=entry.name,
            buffers=list(buffers.values()), cluster=(ctas, 1, 1),
            dynamic_shared=SHARED[call.rows],
        )  # fmt: skip
        results.append(emulate(module, launch, Settings(**settings)))
        outputs.append(arrays[fm.OUT])
    return np.concatenate(outputs), entry, results

"""FlashMLA's sparse prefill and decode for sm_100a: their launches, as its host code makes them.

The parameters are the structures that the host code of FlashMLA 9241ae3 passes; the folder has the
text alone, NAME.ptx. Decode's first parameter is that of the kernel for sm_90a.
"""

import struct

import flashmla_kernels as fm
import ml_dtypes
import numpy as np
import pytest
from flashmla_oracle import VALUES, attended
from flashmla_problems import (
    PARTS,
    REQUESTS,
    WIDTH,
    judge,
    normal,
    nothing_ran,
    sparse_decode,
    unset,
)
from ptx_verdicts import VARIABLE

from mlagen.emulator import Argument, Buffer, Launch, Settings, TensorMap, emulate
from mlagen.emulator.ptx.host.entries import parameter_places
from mlagen.ptx import read_ptx

BF16 = ml_dtypes.bfloat16
SCALE = WIDTH**-0.5
SHARED = {128: 214272, 64: 230656}  # bytes


def parameters(queries, heads, keys, topk):
    """SparseAttnFwdParams, in words of eight bytes."""
    base = 1 / np.log(2)
    head = struct.pack("<7i2f4x", queries, keys, heads, 1, WIDTH, VALUES, topk, SCALE, SCALE * base)
    pointers = (fm.Q, fm.KV, fm.INDICES, fm.SINK)
    body = struct.pack("<5Q", *(k << 32 for k in pointers), 0)
    strides = struct.pack("<6i", heads * WIDTH, WIDTH, WIDTH, WIDTH, topk, topk)
    results = struct.pack("<3Q", *(k << 32 for k in (fm.OUT, fm.MAX_LOGITS, fm.LSE)))
    whole = head + body + strides + results + struct.pack("<i4xQ", 148, 0)
    return struct.unpack("<18Q", whole)


def tensor(buffer, dims, box, swizzle="128B", offset=0, pitch=WIDTH):
    """A map of bf16 rows of `pitch` elements that lie one after the other."""
    strides = [2 * pitch]
    for extent in dims[1:-1]:
        strides.append(strides[-1] * extent)
    ones = (1,) * len(dims)
    return TensorMap(
        buffer, "bf16", dims, tuple(strides), box, ones, swizzle=swizzle, buffer_offset=offset
    )


def maps(buffers, queries, heads, keys):
    """The second parameter: byte offset → number or map. 128 heads: Q, O, keys. 64: the values'
    part of Q, the rest of Q, O, keys."""
    q, kv, out = (buffers[k] for k in (fm.Q, fm.KV, fm.OUT))
    tile, row = (64, 64, 1), (64, 1)
    o = tensor(out, (VALUES, heads, queries), tile, pitch=VALUES)
    if heads == 128:
        shapes = {0: WIDTH, 384: VALUES}
        found = {
            128: tensor(q, (WIDTH, heads, queries), tile), 512: o,
            768: tensor(kv, (WIDTH, keys), row),
        }  # fmt: skip
    else:
        shapes = {0: VALUES, 384: WIDTH - VALUES, 768: VALUES}
        rest = (WIDTH - VALUES, heads, queries)
        found = {
            128: tensor(q, (VALUES, heads, queries), tile),
            512: tensor(q, rest, (32, 64, 1), "64B", 2 * VALUES), 896: o,
            1152: tensor(kv, (VALUES, keys), row),
        }  # fmt: skip
    for at, width in shapes.items():
        found |= {at: np.uint32(heads), at + 4: np.uint32(width), at + 8: np.uint32(queries)}
    return found


def prefill_path(heads):
    """The kernel's text, or a skip that says what is missing."""
    path = fm.folder() / f"sm100_sparse_prefill_h{heads}_k576.ptx"
    if not path.is_file():
        pytest.skip(f"{VARIABLE}: {path} is missing")
    return path


def call_of(q, kv, indices, sink):
    """The arrays of a call, with outputs that nobody has written."""
    rows = q.shape[:2]
    return {
        fm.Q: q, fm.KV: kv, fm.INDICES: indices, fm.SINK: sink,
        fm.OUT: unset((*rows, VALUES), BF16), fm.LSE: unset(rows, np.float32),
        fm.MAX_LOGITS: unset(rows, np.float32),
    }  # fmt: skip


def prefill_launch(heads, arrays):
    """The module and its launch on the arrays of a call."""
    queries, keys, topk = len(arrays[fm.Q]), len(arrays[fm.KV]), arrays[fm.INDICES].shape[-1]
    buffers = {
        k: Buffer(fm.NAMES[k], array, "readwrite" if k in fm.WRITTEN else "read", k << 32)
        for k, array in arrays.items()
    }
    module = read_ptx(prefill_path(heads).read_text())
    places, _ = parameter_places(module.entries[0])
    first, second = (places[p.name] for p in module.entries[0].parameters)
    words = parameters(queries, heads, keys, topk)
    given = [Argument(first + 8 * i, np.uint64(w)) for i, w in enumerate(words)]
    given += [
        Argument(second + at, value) for at, value in maps(buffers, queries, heads, keys).items()
    ]
    ctas = heads // 64
    return module, Launch(
        (ctas * queries, 1, 1), (512 if ctas == 2 else 384, 1, 1), given,
        buffers=list(buffers.values()), cluster=(ctas, 1, 1), dynamic_shared=SHARED[heads],
    )  # fmt: skip


def prefill(heads, *, queries=3, topk=512, **settings):
    """Up to three queries of 128 or 64 heads, `topk` keys of 128 more: all valid; some -1 or past
    the last; none valid. The second half of the first list has greater scores, so that sums are
    scaled on the way. Keys that no index names are NaN. Every head has a sink."""
    keys = topk + 128
    name = prefill_path(heads).stem
    q, kv = normal(1, (queries, heads, WIDTH)), normal(2, (keys, 1, WIDTH))
    draw = np.random.default_rng(3)
    indices = np.stack([draw.permutation(keys)[:topk] for _ in range(3)]).astype(np.int32)
    kv[indices[0, topk // 2 :]] *= BF16(8)
    indices[1, 5:40:3], indices[1, 100:102], indices[2] = -1, (keys, 1 << 30), -1
    indices = indices[:queries].copy()
    named = indices[(indices >= 0) & (indices < keys)]
    kv[np.setdiff1d(np.arange(keys), named)] = np.nan
    sink = draw.standard_normal(heads).astype(np.float32)
    arrays = call_of(q, kv, indices, sink)
    module, launch = prefill_launch(heads, arrays)
    result = emulate(module, launch, Settings(**settings))
    ran = nothing_ran()
    ran.findings[name], ran.seconds[name] = result.findings, result.seconds
    ran.instructions[name] = result.wave_instructions
    for i, row in enumerate(indices):
        chosen = kv[row[(row >= 0) & (row < keys)], 0]
        want = attended(q[i], chosen, np.float32(SCALE), roundings=1, sink=sink)
        judge(ran, i, want, arrays[fm.OUT][i], arrays[fm.LSE][i])
    return ran


class Decode(fm.Given):
    """Sparse decode of 64 heads, rows of 656 bytes: a part of the requests a block. `repaired`:
    with the barrier that it lacks (docs/foreign_ptx.md)."""

    def __init__(self, parts, rows, repaired):
        super().__init__("sm90_sparse_decode_v32_h64", fm.SPARSE, grid=(1, parts, 1))
        self.name = "sm100_sparse_decode_v32_h64"
        self.told |= {"block": [384, 1, 1], "cluster": [1, 1, 1], "dynamic_shared": 232192}
        self.rows = rows  # of the cache
        self.repaired = repaired

    def text(self):
        """The PTX: the store of a row's sum, by all four warps, behind a barrier of theirs."""
        whole = super().text()
        if not self.repaired:
            return whole
        before, store, after = whole.partition("st.shared.f32 \t[%r18], %f194;")
        assert store and store not in after
        return f"{before}bar.sync 9, 128;\n{store}{after}"

    def arguments(self, places, buffers):
        """The structure, then the second parameter: maps of Q, O, Q's last 64, and of the keys'
        e4m3 and bf16 parts. The host code says 64 columns of the third, which lead 64 bytes out of
        Q; the kernel reads 32."""
        for at in range(0, len(self.parameters[0]), 8):
            word = struct.unpack_from("<Q", self.parameters[0], at)[0]
            yield Argument(places[0] + at, np.uint64(word))
        q, kv, out = (buffers[k] for k in (fm.Q, fm.KV, fm.OUT))
        tile, ones = (64, 64, 1, 1), (1,) * 5
        strides = (2 * WIDTH, 64, 2 * 64 * WIDTH, 2 * 64 * WIDTH)
        found = {
            128: tensor(q, (WIDTH, 64, 1, REQUESTS), tile),
            512: tensor(out, (VALUES, 64, 1, REQUESTS), tile, pitch=VALUES),
            768: TensorMap(
                q, "bf16", (32, 64, 2, 1, REQUESTS), strides, (32, 64, 2, 1, 1), ones,
                swizzle="64B", buffer_offset=2 * VALUES,
            ),
            896: TensorMap(kv, "i64", (64, self.rows), (656,), (64, 1), (1, 1)),
            1024: TensorMap(
                kv, "bf16", (64, self.rows), (656,), (32, 1), (1, 1), swizzle="64B",
                buffer_offset=VALUES + 16,
            ),
        }  # fmt: skip
        for at, width in {0: WIDTH, 384: VALUES}.items():
            for i, extent in enumerate((64, width, 1, REQUESTS)):
                found[at + 4 * i] = np.uint32(extent)
        for at, value in found.items():
            yield Argument(places[1] + at, value)


def decode(*, parts=PARTS, repaired=True, **settings):
    """`flashmla_problems.sparse_decode` by the kernel for sm_100a."""
    return sparse_decode(64, given=Decode(parts, 512, repaired), parts=parts, **settings)

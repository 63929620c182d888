"""Small problems for FlashMLA's kernels: their arrays, how they are launched, what should come."""

from dataclasses import dataclass

import flashmla_kernels as fm
import ml_dtypes
import numpy as np
from flashmla_oracle import VALUES, attended, misses

BF16 = ml_dtypes.bfloat16
WIDTH = 576  # elements of a key
REQUESTS, PAGE, PAGES = 2, 64, 8
PARTS = 8  # of the schedule, at most: enough that a request's keys are split
COMBINE = "bfloat16_tELi512ELi8ELi32E"


def unset(shape, dtype):
    """An output that nobody has written: NaN, or -1."""
    return np.full(shape, -1 if dtype == np.int32 else np.nan, dtype)


def normal(seed, shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(BF16)


@dataclass
class Ran:
    """What launches gave: findings by kernel, and how many outputs miss their bounds."""

    findings: dict
    misses: dict
    seconds: dict
    instructions: dict

    def note(self, given, result):
        self.findings[given.name] = result.findings
        self.seconds[given.name] = result.seconds
        self.instructions[given.name] = result.wave_instructions


def nothing_ran():
    return Ran({}, {}, {}, {})


def prefill(width, **settings):
    """Three queries of 128 heads, 128 keys of 256 each: all valid; some -1 or past the last; none
    valid. Keys that no index names are NaN. Every head has a sink."""
    given = fm.Given(f"sm90_sparse_prefill_k{width}", fm.PREFILL).set(sink=fm.SINK)
    q, kv = normal(1, (3, 128, width)), normal(2, (256, 1, width))
    draw = np.random.default_rng(3)
    indices = np.stack([draw.permutation(256)[:128] for _ in range(3)]).astype(np.int32)
    indices[1, 5:40:3], indices[1, 100:102], indices[2] = -1, (256, 1 << 30), -1
    named = indices[(indices >= 0) & (indices < 256)]
    kv[np.setdiff1d(np.arange(256), named)] = np.nan
    sink = draw.standard_normal(128).astype(np.float32)
    arrays = {
        fm.Q: q, fm.KV: kv, fm.INDICES: indices, fm.SINK: sink,
        fm.OUT: unset((3, 128, VALUES), BF16), fm.LSE: unset((3, 128), np.float32),
        fm.MAX_LOGITS: unset((3, 128), np.float32),
    }  # fmt: skip
    ran = nothing_ran()
    ran.note(given, fm.run(given, arrays, **settings))
    for i, row in enumerate(indices):
        keys = kv[row[(row >= 0) & (row < 256)], 0]
        want = attended(q[i], keys, given.scale, roundings=1, sink=sink)
        judge(ran, i, want, arrays[fm.OUT][i], arrays[fm.LSE][i])
        most = arrays[fm.MAX_LOGITS][i]
        if len(keys):
            ran.misses[i, "max"] = misses(most, want.most, want.lse_bound)
        else:
            ran.misses[i, "max"] = int((most != -np.inf).sum())
    return ran


def judge(ran, i, want, out, lse):
    """Note the misses of one query. FlashMLA's log-sum-exp of no key is +inf."""
    ran.misses[i, "out"] = misses(out, want.out, want.out_bound)
    if np.isfinite(want.lse).all():
        ran.misses[i, "lse"] = misses(lse, want.lse, want.lse_bound)
    else:
        ran.misses[i, "lse"] = int((lse != np.inf).sum())


def outputs(heads):
    """What decode, its scheduler and its combine write."""
    parts = REQUESTS + PARTS
    return {
        fm.OUT: unset((REQUESTS, 1, heads, VALUES), BF16),
        fm.LSE: unset((REQUESTS, 1, heads), np.float32),
        fm.LSE_PARTS: unset((parts, heads), np.float32),
        fm.OUT_PARTS: unset((parts, heads, VALUES), np.float32),
        fm.SCHEDULE: unset((PARTS, 8), np.int32),
        fm.SPLITS: unset(REQUESTS + 1, np.int32),
    }


def launches(decode, scheduler, arrays, heads, parts=PARTS, **settings):
    """Scheduler, decode, combine. With PARTS parts a request is split, so that combine has work;
    with two of them each has one request."""
    row = heads * VALUES
    combine = fm.Given("combine", fm.COMBINE, COMBINE, (REQUESTS, 1, heads // 8)).set(
        parts=parts, heads=heads, lse_b=heads, lse_s=heads, out_b=row, out_s=row, parts_lse=heads,
        parts_lse_s=heads, parts_out=row, parts_out_s=row, sink=fm.SINK if fm.SINK in arrays else 0,
    )  # fmt: skip
    decode.grid = decode.grid or (heads // 64, 1, parts)
    ran = nothing_ran()
    for given in (scheduler.set(parts=parts), decode.set(parts=parts), combine):
        ran.note(given, fm.run(given, arrays, **settings))
    assert parts < PARTS or np.diff(arrays[fm.SPLITS]).max() > 1
    return ran


def sparse_decode(heads, *, empty=False, given=None, **settings):
    """Two requests with 256 of 512 keys each in e4m3 with scales, some of them -1; every head has a
    sink. `empty`: the second request has no valid key. Keys that no index names are NaN. `given`:
    a decode kernel other than the one for sm_90a."""
    topk = 256
    given = given or fm.Given(f"sm90_sparse_decode_v32_h{heads}", fm.SPARSE)
    given.set(topk=topk, per_request=topk, per_query=topk, sink=fm.SINK)
    draw = np.random.default_rng(5)
    quantised = (8 * draw.standard_normal((512, 4, 128))).astype(ml_dtypes.float8_e4m3fn)
    scales = 2.0 ** draw.integers(-5, -1, (512, 4)).astype(np.float32)
    cache = np.empty((512, 656), np.uint8)
    cache[:, :VALUES] = quantised.reshape(512, VALUES).view(np.uint8)
    cache[:, VALUES : VALUES + 16] = scales.astype(np.float32).view(np.uint8)
    cache[:, VALUES + 16 :] = normal(6, (512, WIDTH - VALUES)).view(np.uint8)
    latent = quantised.astype(np.float64) * scales[:, :, None]
    rope = cache[:, VALUES + 16 :].copy().view(BF16).astype(np.float64)
    keys = np.concatenate([latent.reshape(512, VALUES), rope], 1)
    indices = np.stack([draw.permutation(512)[:topk] for _ in range(REQUESTS)]).astype(np.int32)
    indices[:, 3:60:7] = -1
    if empty:
        indices[1] = -1
    cache[np.setdiff1d(np.arange(512), indices[indices >= 0])] = 0xFF
    q = normal(7, (REQUESTS, 1, heads, WIDTH))
    sink = draw.standard_normal(heads).astype(np.float32)
    arrays = {fm.Q: q, fm.KV: cache, fm.INDICES: indices, fm.SINK: sink, **outputs(heads)}
    scheduler = fm.Given("scheduler", fm.SCHEDULER).set(topk=topk, lengths=0)
    ran = launches(given, scheduler, arrays, heads, **settings)
    for i, row in enumerate(indices):
        want = attended(q[i, 0], keys[row[row >= 0]], given.scale, roundings=1, sink=sink)
        judge(ran, i, want, arrays[fm.OUT][i, 0], arrays[fm.LSE][i, 0])
    return ran


def dense_decode(lengths, *, told=None, shared=False, **settings):
    """Two requests of 64 heads, four pages each, or of all eight pages where these are `shared`.
    Keys past a request's length are NaN. `told`: the lengths that the kernels are told, if
    others."""
    heads = 64
    given = fm.Given("sm90_dense_decode_bf16", fm.DENSE).set(total_splits=REQUESTS + PARTS)
    q, cache = normal(8, (REQUESTS, 1, heads, WIDTH)), normal(9, (PAGES, PAGE, 1, WIDTH))
    table = np.random.default_rng(10).permutation(PAGES).astype(np.int32)
    table = np.stack([table, table]) if shared else table.reshape(REQUESTS, 4)
    given.set(table=table.shape[1])
    for row, length in zip(table, lengths, strict=True):
        for page, number in enumerate(row):
            cache[number, max(length - page * PAGE, 0) :] = np.nan
    arrays = {
        fm.Q: q, fm.KV: cache, fm.TABLE: table, fm.LENGTHS: np.array(told or lengths, np.int32),
        **outputs(heads),
    }  # fmt: skip
    ran = launches(given, fm.Given("scheduler", fm.SCHEDULER), arrays, heads, **settings)
    for i, length in enumerate(lengths):
        keys = np.concatenate([cache[page, :, 0] for page in table[i]])[:length]
        want = attended(q[i, 0], keys, given.scale, roundings=2)
        judge(ran, i, want, arrays[fm.OUT][i, 0], arrays[fm.LSE][i, 0])
    return ran

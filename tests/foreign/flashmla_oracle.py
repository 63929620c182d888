"""What FlashMLA's kernels should compute, in fp64, and how far formats let them be from it."""

from dataclasses import dataclass

import numpy as np

BF16 = 2.0**-8  # the greatest relative error of a rounding
F32 = 2.0**-24
VALUES = 512  # of a key, that are its value too


@dataclass(frozen=True)
class Attended:
    """Of one query, per head: the output [heads, 512], log-sum-exp and greatest score [heads], and
    bounds of the errors of each."""

    out: np.ndarray
    lse: np.ndarray
    most: np.ndarray
    out_bound: np.ndarray
    lse_bound: np.ndarray


def attended(q, keys, scale, *, roundings, sink=None):
    """Attention of q [heads, d] to keys [n, d], whose first 512 elements are the values.

    Errors: a score is a sum of d products, each rounded to f32 in any order, and its weight is
    2^score, so that the score's absolute error is the weight's relative one. A weight is rounded
    to bf16 `roundings` times before it meets its value, the output once. Sums over keys and scaling
    of a dozen steps are f32.
    """
    q, keys = q.astype(np.float64), keys.astype(np.float64)
    scores = q @ keys.T * scale
    if keys.shape[0] == 0:
        nothing = np.full(len(q), -np.inf)
        zeros = np.zeros((len(q), VALUES))
        return Attended(zeros, nothing, nothing, zeros, np.zeros(len(q)))
    d, n = keys.shape[1], keys.shape[0]
    slack = 2 * F32 * d * (np.abs(q) @ np.abs(keys).T * abs(scale)).max(1)
    slack += 16 * F32 * (1 + np.abs(scores).max(1))  # scaling and the exponential
    most = scores.max(1)
    weights = np.exp(scores - most[:, None])
    total = weights.sum(1)
    lse = most + np.log(total)
    weights /= total[:, None]
    if sink is not None:
        weights *= (1 / (1 + np.exp(sink.astype(np.float64) - lse)))[:, None]
    values = keys[:, :VALUES]
    out = weights @ values
    relative = roundings * BF16 + 2 * slack + (n + 16) * 2 * F32
    bound = weights @ np.abs(values) * relative[:, None] + BF16 * np.abs(out)
    return Attended(out, lse, most, bound, slack + (n + 16) * F32 * (1 + np.abs(lse)))


def misses(got, want, bound):
    """How many elements are farther from `want` than `bound`, or not numbers."""
    error = np.abs(got.astype(np.float64) - want)
    return int((~(error <= bound)).sum())

"""FlashMLA's kernels on the PTX emulator: right by fp64 in all modes, every finding judged."""

import flashmla_blackwell as blackwell
import flashmla_problems as problems
import pytest
from ptx_verdicts import EMULATED, SUMS_OVER_MAXIMA, emulated_class_of

PROBLEMS = {
    "sparse_prefill_k576": lambda **s: problems.prefill(576, **s),
    "sparse_prefill_k512": lambda **s: problems.prefill(512, **s),
    "sparse_decode_v32_h64": lambda **s: problems.sparse_decode(64, **s),
    "sparse_decode_v32_h64_empty": lambda **s: problems.sparse_decode(64, empty=True, **s),
    "sparse_decode_v32_h128": lambda **s: problems.sparse_decode(128, **s),
    "sparse_decode_v32_h64_whole": lambda **s: problems.sparse_decode(64, parts=2, **s),
    "sparse_decode_v32_h128_whole": lambda **s: problems.sparse_decode(128, parts=2, **s),
    "dense_decode_bf16": lambda **s: problems.dense_decode((256, 33), **s),
    "dense_decode_bf16_tails": lambda **s: problems.dense_decode((200, 97), **s),
    "dense_decode_bf16_whole_8": lambda **s: problems.dense_decode(
        (485, 485), shared=True, parts=2, **s
    ),
    "dense_decode_bf16_whole_7": lambda **s: problems.dense_decode(
        (421, 421), shared=True, parts=2, **s
    ),
    "dense_decode_bf16_empty": lambda **s: problems.dense_decode((0, 256), **s),
    "sm100_sparse_prefill_h128": lambda **s: blackwell.prefill(128, **s),
    "sm100_sparse_prefill_h64": lambda **s: blackwell.prefill(64, **s),
    "sm100_sparse_decode_v32_h64": lambda **s: blackwell.decode(**s),
    "sm100_sparse_decode_v32_h64_whole": lambda **s: blackwell.decode(parts=2, **s),
    "sm100_sparse_decode_v32_h64_empty": lambda **s: blackwell.decode(empty=True, **s),
}

PARTLY = ("dense_decode_bf16_empty", "sm100_sparse_decode_v32_h64_whole")  # not all classes


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["latest", "earliest", "random"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_right_and_every_finding_has_a_verdict(problem, mode):
    ran = PROBLEMS[problem](mode=mode)
    assert not any(ran.misses.values()), ran.misses
    for kernel, findings in ran.findings.items():
        found = {emulated_class_of(finding) for finding in findings}
        assert None not in found, [
            f.message[:300] for f in findings if emulated_class_of(f) is None
        ]
        assert found <= EMULATED.get(kernel, frozenset())
        # A request that ends where a page ends has no tail to clear; one in one part is not split.
        if mode == "latest" and problem not in PARTLY:
            assert found == EMULATED.get(kernel, frozenset())


@pytest.mark.slow
@pytest.mark.parametrize(("exact", "most"), [(False, 10), (True, 60)])
def test_a_row_block_of_2048_keys_takes_seconds(exact, most):
    """Both blocks of a pair, 128 heads, with the sanitizer. `most`: seconds of the kernel's run."""
    ran = blackwell.prefill(128, queries=1, topk=2048, exact=exact)
    assert not any(ran.misses.values()), ran.misses
    (seconds,) = ran.seconds.values()
    print(f"exact {exact}: {seconds:.2f} s, {ran.instructions}")
    assert seconds < most


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["latest", "earliest", "random"])
def test_a_missing_barrier_of_flashmla_is_found(mode):
    """The chip's own timing hides it as mode earliest does; a warp that is late reads sums."""
    ran = blackwell.decode(repaired=False, mode=mode)
    findings = ran.findings["sm100_sparse_decode_v32_h64"]
    assert SUMS_OVER_MAXIMA in {emulated_class_of(finding) for finding in findings}
    assert any(ran.misses.values()) == (mode != "earliest")


@pytest.mark.slow
def test_an_attended_key_too_few_is_seen():
    """The bounds are narrow enough to tell 96 keys from 97."""
    ran = problems.dense_decode((200, 97), told=(200, 96))
    assert ran.misses[1, "out"] > 0
    assert not ran.misses[0, "out"]

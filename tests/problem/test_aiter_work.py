"""Work of MLA decode in AITER's form: what plans make passes, and what is wrong is named."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlagen.errors import ConfigError
from mlagen.families.mla_decode.aiter_plan import plan_aiter
from mlagen.families.mla_decode.aiter_work import (
    AiterItem,
    AiterShape,
    check_aiter_work,
    check_merging,
    check_page_list,
)
from mlagen.families.mla_decode.problem import MlaDecodeConfig

CONFIG = MlaDecodeConfig(16, q_len=2)
LENGTHS = (300, 0, 65)


def ints(*values):
    return np.array(values, np.int32)


def shape_of(config, lengths):
    pages = [config.pages(n) for n in lengths]
    last = [(n - 1) % config.page_size + 1 if n else 0 for n in lengths]
    return AiterShape.of(
        config, ints(*range(0, config.q_len * len(lengths) + 1, config.q_len)),
        ints(*np.cumsum([0, *pages])), ints(*last),
    )  # fmt: skip


def refused(words, call):
    with pytest.raises(ConfigError, match=re.escape(words)):
        call()


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 2000), min_size=1, max_size=6),
    page_size=st.sampled_from([1, 16, 64, 192]),
    q_len=st.integers(1, 8),
    workgroups=st.integers(1, 40),
    split_keys=st.sampled_from([None, 64, 192, 640]),
)
def test_plans_do_all_work_once(lengths, page_size, q_len, workgroups, split_keys):
    config = MlaDecodeConfig(16, page_size=page_size, q_len=q_len)
    plan = plan_aiter(config, lengths, workgroups=workgroups, split_keys=split_keys)
    groups = check_aiter_work(
        shape_of(config, lengths), plan.work_indptr, plan.work_info_set,
        partial_rows=plan.partial_rows,
    )  # fmt: skip
    assert len(groups) == workgroups
    counts = [len(group) for group in groups]
    assert max(counts) - min(counts) <= 1
    items = [item for group in groups for item in group]
    if len(plan.reduce_final_map):
        check_merging(items, plan.reduce_indptr, plan.reduce_final_map, plan.reduce_partial_map)
    for sequence, own in enumerate(plan.splits):
        assert [i.sequence for i in items].count(sequence) == len(own)
        assert all(tile * 64 % page_size == 0 for tile in own)


@pytest.fixture
def shape():
    return shape_of(CONFIG, LENGTHS)


@pytest.fixture
def work():
    """Two workgroups; the first sequence is in three parts, of pages 0..1, 2..3 and 4."""
    items = [
        AiterItem(0, 0, 0, 2, 0, 2), AiterItem(0, 2, 0, 2, 2, 4), AiterItem(0, 4, 0, 2, 4, 5),
        AiterItem(1, -1, 2, 4, 5, 5), AiterItem(2, -1, 4, 6, 5, 7),
    ]  # fmt: skip
    return ints(0, 2, 5), items


def checked(shape, work, rows=6, **changed):
    indptr, items = work
    items = [changed.get(f"item{n}", item) for n, item in enumerate(items)]
    items = [item for item in items if item is not None]
    indptr = changed.get("indptr", np.minimum(indptr, len(items)).astype(np.int32))
    return check_aiter_work(shape, indptr, ints(*items), partial_rows=rows)


def test_right_work_passes(shape, work):
    first, second = checked(shape, work)
    assert (len(first), len(second)) == (2, 3)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        # Overlaps.
        ({"item1": AiterItem(0, 2, 0, 2, 1, 4)}, "work_info_set[1]: the items of tokens 0 .. 1 of "
         "sequence 0 overlap: pages begin at 1, those before end at 2"),
        ({"item3": AiterItem(2, -1, 4, 6, 5, 7)}, "no item computes token 2 of sequence 1"),
        ({"item3": AiterItem(0, -1, 1, 2, 0, 5)}, "items of sequence 0 overlap: tokens 1 .. 1"),
        # Gaps.
        ({"item1": AiterItem(0, 2, 0, 2, 3, 4)}, "the items of tokens 0 .. 1 of sequence 0 leave a "
         "gap: pages begin at 3, those before end at 2"),
        ({"item1": None}, "leave a gap: pages begin at 4, those before end at 2"),
        ({"item2": None}, "work_info_set[1]: the items of tokens 0 .. 1 of sequence 0 end at page "
         "4, after 256 keys; these tokens see 300"),
        ({"item0": AiterItem(0, 0, 0, 2, 1, 2)}, "pages begin at 1, those before end at 0"),
        ({"item3": None}, "no item computes token 2 of sequence 1"),
        ({"item4": AiterItem(2, -1, 5, 6, 5, 7)}, "no item computes token 4 of sequence 2"),
        # Past a sequence.
        ({"item2": AiterItem(0, 4, 0, 2, 4, 6)}, "work_info_set[2]: pages 4 .. 5 run past those of "
         "sequence 0, 0 .. 4"),
        ({"item4": AiterItem(2, -1, 4, 7, 5, 7)}, "tokens 4 .. 6 run past those of sequence 2"),
        ({"item4": AiterItem(2, -1, 3, 6, 5, 7)}, "tokens 3 .. 5 run past those of sequence 2"),
        ({"item4": AiterItem(2, -1, 4, 6, 7, 5)}, "pages 7 .. 4 run past those of sequence 2"),
        ({"item4": AiterItem(3, -1, 4, 6, 5, 7)}, "work_info_set[4]: sequence 3 is not in 0 .. 2"),
        ({"item4": AiterItem(-1, -1, 4, 6, 5, 7)}, "sequence -1 is not in 0 .. 2"),
        # Places of parts.
        ({"item1": AiterItem(0, 0, 0, 2, 2, 4)}, "work_info_set[1] and work_info_set[0] both write "
         "row 0 of the partial buffers"),
        ({"item1": AiterItem(0, 1, 0, 2, 2, 4)}, "both write row 1"),
        ({"item2": AiterItem(0, 5, 0, 2, 4, 5)}, "work_info_set[2]: its part takes rows 5 .. 6, "
         "the partial buffers have 6"),
        ({"item2": AiterItem(0, -2, 0, 2, 4, 5)}, "work_info_set[2] writes O of"),
        ({"item4": AiterItem(2, -2, 4, 6, 5, 7)}, "work_info_set[4]: its place -2 is below -1"),
        ({"item1": AiterItem(0, -1, 0, 2, 2, 4)}, "work_info_set[1] writes O of tokens 0 .. 1 of "
         "sequence 0, which 3 items compute"),
        # Offsets.
        ({"indptr": ints(0, 3, 2)}, "work_indptr[2]=2 is below work_indptr[1]=3"),
        ({"indptr": ints(1, 2, 5)}, "work_indptr[0]=1: offsets start at 0"),
        ({"indptr": ints(0, 2, 9)}, "work_indptr ends at 9, work_info_set has 5 items"),
        ({"indptr": ints(0, 2, 4)}, "no item computes token 4 of sequence 2"),
        ({"indptr": np.array([0, 2, 5])}, "work_indptr has dtype int64, the kernel wants int32"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_wrong_work_is_named(shape, work, changed, words):
    refused(words, lambda: checked(shape, work, **changed))


def test_parts_that_do_not_fit_are_named(shape, work):
    refused("its part takes rows 4 .. 5", lambda: checked(shape, work, rows=5))


def test_causal_tokens_need_no_more_pages_than_they_see():
    """The older of two tokens does not see the last key, which alone lies in the last page."""
    for mask, fits in (("causal", True), ("null", False)):
        shape = shape_of(MlaDecodeConfig(16, q_len=2, mask=mask), (65,))
        items = [AiterItem(0, -1, 0, 1, 0, 1), AiterItem(0, -1, 1, 2, 0, 2)]

        def call(shape=shape, items=items):
            return check_aiter_work(shape, ints(0, 2), ints(*items), partial_rows=0)

        if fits:
            assert call()
        else:
            refused("end at page 1, after 64 keys; these tokens see 65", call)


@pytest.mark.parametrize(
    ("qo", "kv", "last", "words"),
    [
        (ints(0, 2, 1), ints(0, 1, 2), ints(1, 1), "qo_indptr[2]=1 is below qo_indptr[1]=2"),
        (ints(0, 2, 4), ints(0, 2, 1), ints(1, 1), "kv_indptr[2]=1 is below kv_indptr[1]=2"),
        (ints(1, 2, 4), ints(0, 1, 2), ints(1, 1), "qo_indptr[0]=1: offsets start at 0"),
        (ints(0, 2, 5), ints(0, 1, 2), ints(1, 1), "sequence 1 has 3 query tokens, the kernel is "
         "for up to 2"),
        (ints(0, 2, 4), ints(0, 1, 2), ints(1, 65), "kv_last_page_lens[1]=65 is not in 1 .. 64"),
        (ints(0, 2, 4), ints(0, 1, 2), ints(0, 1), "kv_last_page_lens[0]=0 is not in 1 .. 64"),
        (ints(0, 2, 4), ints(0, 1), ints(1, 1), "kv_indptr has shape (2,), the kernel wants (3)"),
        (ints(0, 2, 4), ints(0, 1, 2), ints(1), "kv_last_page_lens has shape (1,)"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_wrong_sequences_are_named(qo, kv, last, words):
    refused(words, lambda: AiterShape.of(CONFIG, qo, kv, last))


def test_a_wrong_page_list_is_named(shape):
    good = ints(*range(7), 99)  # the last entry is not used
    check_page_list(shape, good, pool=7)
    refused("kv_indptr ends at 7, but kv_page_indices has 6", lambda: check_page_list(
        shape, good[:6], 7))  # fmt: skip
    refused("kv_page_indices[6]=6 is not in 0 .. 5", lambda: check_page_list(shape, good, 6))
    refused("kv_page_indices[2]=-1", lambda: check_page_list(
        shape, ints(0, 1, -1, 3, 4, 5, 6), 7))  # fmt: skip


@pytest.mark.parametrize(
    ("indptr", "final", "parts", "words"),
    [
        (ints(0, 3), ints([0, 2]), ints(0, 2, 2), "reduce group 0 merges rows [0, 2, 2] into "
         "tokens 0 .. 1, whose parts are at [0, 2, 4]"),
        (ints(0, 2), ints([0, 2]), ints(0, 2), "reduce group 0 merges rows [0, 2]"),
        (ints(0, 3), ints([2, 4]), ints(0, 2, 4), "into tokens 2 .. 3, whose parts are at no rows"),
        (ints(0, 3, 6), ints([0, 2], [0, 2]), ints(0, 2, 4, 0, 2, 4), "reduce group 1 merges rows"),
        (ints(0, 0), ints([0, 2]), ints(0, 2, 4), "no reduce group merges tokens 0 .. 1, whose "
         "parts are at rows [0, 2, 4]"),
        (ints(0, 4), ints([0, 2]), ints(0, 2, 4), "reduce_indptr needs 4 entries of reduce_part"),
        (ints(0, 3, 3), ints([0, 2]), ints(0, 2, 4), "needs 2 entries of reduce_final_map"),
        (ints(0, 3, 2), ints([0, 2], [2, 4]), ints(0, 2, 4), "reduce_indptr[2]=2 is below"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_a_wrong_reduction_is_named(work, indptr, final, parts, words):
    refused(words, lambda: check_merging(work[1], indptr, final, parts))


def test_a_right_reduction_passes(work):
    """Groups without parts hold anything."""
    final = ints([7, 3], [0, 2], [-5, 99])
    check_merging(work[1], ints(0, 0, 3, 3), final, ints(4, 0, 2, 77))

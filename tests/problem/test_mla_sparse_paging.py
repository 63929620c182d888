"""Where rows of a pool lie: the numbers that kernels take."""

import pytest

from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.paging import Paging
from mlagen.families.mla_sparse.rows import FORMATS


@pytest.mark.parametrize("page_size", [1, 2, 3, 53, 61, 64, 69, 576, 2**20 - 1, 2**29])
def test_a_row_is_found_by_the_numbers_of_paging(page_size):
    """The numbers a kernel takes lead to the byte where numpy's strides say that a row begins."""
    row, bytes_ = FORMATS["bf16"], 1152 + 32
    pages = max(2, min(2**31 // page_size - 1, 5000))
    page = page_size * bytes_ + 4096
    paging = Paging.of(row, 576, (pages, page_size), (page, bytes_))
    last = pages * page_size - 1
    for index in {0, 1, page_size - 1, page_size, page_size + 1, last // 2, last - 1, last}:
        if 0 <= index <= last:
            own = index // page_size * page + index % page_size * bytes_
            if page_size == 1:
                own = index * page
            quotient = index * paging.page_magic >> paging.page_shift
            assert index * paging.row_bytes + quotient * paging.page_gap == own
            assert paging.page_magic < 2**32


@pytest.mark.parametrize(
    ("shape", "strides", "message"),
    [
        ((2, 64), (64 * 1152 + 8, 1152), "multiples of 16 bytes"),
        ((2, 64), (2**33, 1152), "at most 2\\*\\*32 - 1 more"),
        ((2**16, 2**15), (2**15 * 1152, 1152), "at most 2147483647 rows"),
    ],
)
def test_a_pool_that_kernels_cannot_address(shape, strides, message):
    with pytest.raises(ConfigError) as told:
        Paging.of(FORMATS["bf16"], 576, shape, strides)
    assert message.replace("\\", "") in (told.value.hint or "")

"""Division by constants is exact on the whole range of positions."""

import numpy as np
import pytest

from mlagen.attention.prefill.gfx950.division import Divider
from mlagen.errors import ConfigError

MOST = 2**31 - 1
DIVISORS = [1, 2, 3, 5, 7, 64, 90, 100, 192, 641, 4096, 65537, 10**9, 2**30, 2**31 - 1, 2**31]


@pytest.mark.parametrize("divisor", DIVISORS)
def test_quotients_next_to_every_kind_of_multiple(divisor):
    by = Divider.of(divisor)
    rng = np.random.default_rng(divisor)
    multiples = [m * divisor for m in (1, 2, 3, MOST // divisor) if m * divisor <= MOST]
    near = [x + d for x in (*multiples, MOST) for d in (-1, 0, 1) if 0 <= x + d <= MOST]
    for x in (*near, 0, *map(int, rng.integers(0, MOST, 2000))):
        assert by(x) == x // divisor, x
    assert by.magic < 2**32


def test_one_bit_more_would_not_be_exact():
    """The range is stated because it ends: some numerator of 32 bits goes wrong."""
    by = Divider.of(7)
    top = 2**32 - 2**32 % 7 - 1
    assert any(by(x) != x // 7 for x in range(top - 7 * 1000, top + 1))


@pytest.mark.parametrize("divisor", [0, -1, 2**31 + 1])
def test_divisors_without_a_reciprocal_are_refused(divisor):
    with pytest.raises(ConfigError, match="divisors are 1 to"):
        Divider.of(divisor)

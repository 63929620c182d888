"""How many blocks of threads a plan deals work out to, whatever the family."""

from __future__ import annotations

from mlagen.errors import ConfigError
from mlagen.problem.fields import integer

MOST_BLOCKS = 1 << 14  # no GPU has a thousand compute units; a plan takes a list as long


def check_blocks(name: str, count: int) -> None:
    """ConfigError for a number of blocks, a caller's `name`, that no plan deals out to."""
    if integer(name, count) not in range(1, MOST_BLOCKS + 1):
        raise ConfigError(f"{name}={count} is not in 1 .. {MOST_BLOCKS}")

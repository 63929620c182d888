"""mla_prefill_v2 built once a problem, and what it must pass."""

from functools import lru_cache

from mlagen.codegen import build
from mlagen.problem import MlaConfig
from mlagen.verify import verify

KERNEL = "mla_prefill_v2"
TILE = 128


@lru_cache(maxsize=64)
def built(config, **knobs):
    return build(KERNEL, config, knobs=knobs)


def artifact(heads=(1, 1), **fields):
    """fp8 where `fields` say nothing else."""
    return built(MlaConfig(*heads, **{"dtype": "fp8_e4m3", **fields}))


def check(kernel, **shape):
    """Right by both oracles, clean in all modes, proved, every vote decided."""
    report = verify(kernel, **shape)
    assert report.right, (shape, str(report.error()))
    assert report.clean, (shape, [finding.render() for finding in report.findings])
    assert report.proved
    assert all(c.undecided == c.nans == 0 for run in report.runs for c in run.comparisons)
    return report


def keys_of(tiles, tail):
    """Keys of so many tiles, of which the last holds `tail`; 0: it is full."""
    return TILE * tiles if tail == 0 else TILE * (tiles - 1) + tail

"""What draws from a product of options have in common, and what a verified kernel must pass."""

import os

from hypothesis import HealthCheck, Phase, settings

from mlagen.verify import verify

MODES = ("latest", "earliest", "random")


def drawing(few):
    """Settings of a draw: `few` examples, the same each time; MLAGEN_CROSS_PRODUCT=2000 draws that
    many, anew each time."""
    return settings(
        max_examples=int(os.environ.get("MLAGEN_CROSS_PRODUCT", few)),
        derandomize="MLAGEN_CROSS_PRODUCT" not in os.environ,
        database=None,
        deadline=None,
        # A failing example is small as it is; shrinking it would build hundreds of kernels.
        phases=(Phase.generate,),
        suppress_health_check=[HealthCheck.too_slow],
    )


def shape_of(config, lengths, keys, starts):
    """Sizes of a call. `lengths`, `keys`, `starts`: of each sequence; a dense kernel takes the
    first of each."""
    if config.ragged:
        return {"lengths": lengths, "num_keys": keys, "start_pos": starts}
    if config.page_size:
        rows = max(max(lengths), 1)
        return {"batch": len(keys), "seq_len": rows, "num_keys": keys, "start_pos": starts}
    rows = max(lengths[0], 1)
    return {"batch": 2, "seq_len": rows, "num_keys": keys[0], "start_pos": starts[0]}


def keys_of(kv_block, tiles, tail):
    """Keys of so many tiles, of which the last holds `tail`; 0: it is full."""
    return kv_block * tiles if tail == 0 else kv_block * (tiles - 1) + tail


def verified(artifact, **shape):
    """Right by both oracles, clean in all modes, proved, every vote decided."""
    report = verify(artifact, **shape)
    assert report.right, (shape, str(report.error()))
    assert report.clean, (shape, [finding.render() for finding in report.findings])
    assert report.proved
    assert all(c.undecided == c.nans == 0 for run in report.runs for c in run.comparisons)
    return report

"""FlashMLA's sparse decode for sm_100a on arrays that ours take too: right by fp64, in the mode in
which the race of its kernel for V3.2 rows does not show (docs/foreign_ptx.md)."""

import flashmla_blackwell_decode as fd
import pytest
from flashmla_oracle import attended, misses


@pytest.mark.parametrize(("rows", "heads"), [("v32", 64), ("v32", 128), ("model1", 128)])
def test_its_decode_is_right(rows, heads):
    call = fd.call_of(rows, heads, 512)
    out, _, results = fd.decode(call, sanitize=False, mode="earliest")
    want = attended(call.q, call.keys[call.indices], call.scale, roundings=1, sink=call.sink)
    assert not misses(out, want.out, want.out_bound)
    assert len(results) == (2 if (rows, heads) == ("v32", 128) else 1)

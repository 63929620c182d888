"""Memory that launches use, with torch's own allocator: a plan that is let go while its kernel
waits on another stream, and one that a graph uses."""

from __future__ import annotations

import gc

import pytest

import mlagen
from mlagen.launch.lifetimes import HELD

torch = pytest.importorskip("torch")
BATCH, KEYS = 64, 1024
# Cycles, 0.3 s and more: longer than it takes to collect garbage. Beside the other tests of a GPU
# that may take seconds; then a longer wait shows it.
WAITS = [600_000_000 << n for n in (0, 0, 0, 1, 2, 3, 4)]


@pytest.fixture(scope="module")
def kernel():
    return mlagen.build("mla_decode_sm90", num_heads=16)


@pytest.fixture(scope="module")
def call():
    torch.manual_seed(1)
    pages = KEYS // 64
    return {
        "q": torch.randn(BATCH, 1, 16, 576, device="cuda").to(torch.bfloat16),
        "cache": torch.randn(BATCH * pages, 64, 1, 576, device="cuda").to(torch.bfloat16),
        "block_table": torch.arange(BATCH * pages, device="cuda").int().view(BATCH, pages),
        "cache_lengths": torch.full((BATCH,), KEYS, dtype=torch.int32, device="cuda"),
        "scale": 192**-0.5,
    }


def planned(kernel):
    """A plan that leaves parts, and where its tensors lie."""
    plan = kernel.plan([KEYS] * BATCH, split_keys=256)
    named = ("items", "merges", "partial_o", "partial_lse", "arrivals")
    held = [getattr(plan, name) for name in named]
    return plan, {x.data_ptr(): x.numel() * x.element_size() for x in held if x is not None}


def written_over(sizes) -> set[int]:
    """Where new tensors of these sizes, full of NaN and of -1, lie."""
    found = set()
    for size in sizes:
        for _ in range(4):
            made = torch.full((size,), 0xFF, dtype=torch.uint8, device="cuda")
            found.add(made.data_ptr())
    return found


@pytest.mark.parametrize("way", ["run", "prepared"])
def test_a_plan_that_is_let_go_while_its_kernel_waits(kernel, call, way) -> None:
    plan, _ = planned(kernel)
    want = plan.run(**call)[0].clone()
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    shown = 0
    for cycles in WAITS:
        plan, places = planned(kernel)
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(cycles)
            if way == "run":
                out, _ = plan.run(**call)
            else:
                step = kernel.prepare(**call, plan=plan)
                step()
                out = step.output
                del step
        del plan
        gc.collect()
        taken = written_over(places.values()) & places.keys()
        waits = not side.query()
        torch.cuda.synchronize()
        assert torch.equal(out.view(torch.int16), want.view(torch.int16))
        if waits:
            assert not taken
            shown += 1
        if shown == 3:
            return
    assert shown, "each kernel had run before its plan was let go: nothing is shown"


def test_a_kernel_that_is_let_go_while_it_runs(call) -> None:
    """With the workspaces of calls without a plan."""
    own = mlagen.build("mla_decode_sm90", num_heads=16)
    want = own(**call)[0].clone()
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        own(**call)
        torch.cuda.synchronize()
        torch.cuda._sleep(WAITS[0])
        out, _ = own(**call)
    del own
    gc.collect()
    written_over([1 << n for n in range(9, 24)])
    torch.cuda.synchronize()
    assert torch.equal(out.view(torch.int16), want.view(torch.int16))


def test_a_graph_keeps_the_plan_that_it_uses(kernel, call) -> None:
    """Until it is gone; then the plan's memory is given away again."""
    plan, places = planned(kernel)
    want = plan.run(**call)[0].clone()
    torch.cuda.synchronize()
    before = len(HELD)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, _ = plan.run(**call)
    assert len(HELD) == before + 1
    del plan
    gc.collect()
    assert not written_over(places.values()) & places.keys()
    for _ in range(3):
        out.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out.view(torch.int16), want.view(torch.int16))
    del graph, out
    gc.collect()
    torch.cuda.synchronize()
    for _ in range(50):
        HELD.sweep()
        if len(HELD) == before:
            break
        torch.cuda._sleep(1_000_000)
        torch.cuda.synchronize()
    assert len(HELD) == before
    assert written_over(sorted(places.values())) & places.keys()

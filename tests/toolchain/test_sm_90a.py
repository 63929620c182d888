"""Capacities of sm_90a against the assembler that knows the hardware."""

from __future__ import annotations

import ptx_samples as ptx
import pytest

from mlagen.errors import CapacityError, TemplateError
from mlagen.targets.nvidia.ptxas import TOOLS, assemble_ptx
from mlagen.targets.sm_90a.limits import SM_90A

pytestmark = pytest.mark.skipif(
    not any(tried.tools for tried in TOOLS.every("sm_90a")), reason="no ptxas here"
)


def assembles(text: str) -> bool:
    try:
        assemble_ptx(text, file_name="k.ptx", source_lines={}, schedule_file="k.py")
    except (TemplateError, CapacityError):
        return False
    return True


def test_shared_memory_of_a_block() -> None:
    for extra, fits in ((0, True), (1024, False)):
        declared = f".shared .b8 own[{SM_90A.smem_bytes + extra}];"
        # No dynamic memory beside it: its alignment would round the sum up.
        text = ptx.kernel(declared, "mov.u32 %i, own;", "st.shared.u32 [%i], %t;")
        assert assembles(text.replace(".extern .shared .align 1024", ".extern .shared")) == fits


@pytest.mark.parametrize(
    ("count", "legal"),
    [
        (SM_90A.setmaxnreg_min, True),
        (SM_90A.setmaxnreg_max, True),
        (SM_90A.setmaxnreg_min - SM_90A.setmaxnreg_step, False),
        (SM_90A.setmaxnreg_max + SM_90A.setmaxnreg_step, False),
        (SM_90A.setmaxnreg_min + SM_90A.setmaxnreg_step // 2, False),
    ],
)
def test_setmaxnreg(count: int, legal: bool) -> None:
    text = ptx.setmaxnreg(".maxntid 384, 1, 1\n.minnctapersm 1", count)
    if count < 40:  # so few are for a producer that does little
        text = ptx.kernel(
            f"setmaxnreg.dec.sync.aligned.u32 {count};",
            directives=".maxntid 384, 1, 1\n.minnctapersm 1",
        )
    assert assembles(text) == legal


def test_named_barriers() -> None:
    assert assembles(ptx.kernel(f"bar.sync {SM_90A.named_barriers - 1}, 128;"))
    assert not assembles(ptx.kernel(f"bar.sync {SM_90A.named_barriers}, 128;"))


@pytest.mark.parametrize(("n", "legal"), [(8, True), (176, True), (256, True), (264, False)])
def test_wgmma_shapes(n: int, legal: bool) -> None:
    registers = ", ".join(f"%big{i}" for i in range(n // 2))
    text = ptx.kernel(
        ".reg .f32 %more<8>;",
        *(f"mov.f32 %big{i}, 0f00000000;" for i in range(n // 2)),
        ptx.FENCE,
        f"wgmma.mma_async.sync.aligned.m64n{n}k16"
        f".f32.bf16.bf16 {{{registers}}}, %da0, %db0, %p, 1, 1, 0, 0;",
        ptx.COMMIT,
        ptx.wait(0),
        *(f"st.global.f32 [%out+{4 * i}], %big{i};" for i in range(n // 2)),
    )
    assert assembles(text) == legal


def test_the_register_budget_is_the_count_at_entry() -> None:
    for threads in (288, 384, 416, 512):  # fewer threads may have more than one can use
        directives = f".maxntid {threads}, 1, 1\n.minnctapersm 1"
        result = assemble_ptx(
            ptx.setmaxnreg(directives),
            file_name="k.ptx",
            source_lines={},
            schedule_file="k.py",
        )
        assert result.registers == SM_90A.register_budget(threads)


def test_a_swizzles_period() -> None:
    assert [SM_90A.swizzle_align(mode) for mode in SM_90A.swizzle_modes] == [128, 256, 512, 1024]

"""A call that is repeated while the GPU has other work, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

ROUNDS = 1000


def same_bits_under_load(
    call: Callable[[], Any], outputs: Sequence[Any], workspaces: Iterable[Any] = ()
) -> None:
    """A thousand calls among matmuls on another stream leave the bits of the first in `outputs`,
    bf16 or fp32. These and workspaces are NaN before each call."""
    import torch

    call()
    torch.cuda.synchronize()
    views = [t.view({2: torch.int16, 4: torch.int32}[t.element_size()]) for t in outputs]
    first = [view.clone() for view in views]
    other = torch.cuda.Stream()
    a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    differences = torch.zeros((), device="cuda", dtype=torch.int64)
    for round_ in range(ROUNDS):
        if round_ % 4 == 0:
            with torch.cuda.stream(other):
                a = (a @ a) * 1e-2
        for tensor in (*outputs, *workspaces):
            tensor.fill_(float("nan"))
        call()
        for view, before in zip(views, first, strict=True):
            differences += (view != before).sum()
    torch.cuda.synchronize()
    assert int(differences) == 0

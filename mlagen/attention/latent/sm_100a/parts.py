"""A kernel as its parts: rows, storage, queries, products, softmax and output, one of each."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from mlagen.attention.latent.nvidia.row_form import RowForm
from mlagen.attention.latent.sm_100a.kernel import TensorMemoryKernel, check_roles
from mlagen.attention.latent.sm_100a.products import Products
from mlagen.attention.latent.sm_100a.queries import Queries
from mlagen.attention.latent.sm_100a.softmax import Softmax
from mlagen.dsl import PipelineOrder, Value, by
from mlagen.dsl.plain import Part
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl import PipelineSpace, TmemRegion, WarpRole


class Rows(Protocol):
    """Which rows of the cache a block attends to, and where they lie. `name`: of its folders of
    templates; `persists`: blocks may take one item after another; `queries`: the template by which
    Q comes. `form`: how a row is read that feeders
    convert; `weighs`: whether each has a scale of its own; `positions`: whether each comes with its
    position. `ahead`: what the softmax does for a tile before its scores come, of the plain order.
    """

    name: ClassVar[str]
    persists: ClassVar[bool]
    queries: str
    form: RowForm
    weighs: bool
    positions: bool
    ahead: tuple[str, ...]

    def __init__(self, kernel: TensorMemoryKernel, softmax: WarpRole) -> None:
        """Declares the kernel's signature, and what its setup finds."""

    @staticmethod
    def on_a_pair(k: Any) -> bool:
        """Whether the problem has more query rows that share keys than one block."""
        ...


class Storage(Protocol):
    """How rows come to SMEM: what `copy` of the pipelines of K and V is. `converts`: feeders make
    bf16 of rows. `lands`: those of a CTA pair arrive in the own block, and are handed on to the
    leader. A feeder has `threads(ctas)` threads; `fills`: how it fills a pipeline."""

    converts: ClassVar[bool]
    lands: ClassVar[bool]

    def __init__(self, kernel: TensorMemoryKernel, rows: Rows) -> None:
        """Declares registers of feeders."""

    @staticmethod
    def threads(ctas: int) -> int: ...

    @staticmethod
    def fills(ctas: int) -> dict[str, Any]: ...

    @property
    def steps(self) -> tuple[Part, ...]:
        """How a tile's rows come, of the plain order."""


class Latent:
    """The parts of one kernel over the pipelines query, keys, weights and scores, of a CTA pair
    also values, the sums `o`, the region Q of what is copied of the queries, and registers (s, p,
    o)."""

    def __init__(
        self, k: Any, s: PipelineSpace, rows: type[Rows], storage: type[Storage],
        softmax: WarpRole, o: TmemRegion,
    ) -> None:  # fmt: skip
        if storage.converts != k.dequantized:
            raise ScheduleError(
                f"{storage.__name__} for rows that are "
                + ("converted" if k.dequantized else "products' operands as they are stored"),
            )
        kernel = TensorMemoryKernel(k, s)
        threads = {pipeline.producer: storage.threads(s.smem.blocks) for pipeline in kernel.rows}
        check_roles(s, {**threads, softmax.name: 128})
        self.kernel, self.softmax_role = kernel, softmax.name
        self.products = Products(kernel, o)
        self.rows = rows(kernel, softmax)
        self.softmax = Softmax(kernel, softmax, self.rows.name, weighs=self.rows.weighs)
        self.queries = Queries(kernel, self.rows.queries, softmax)
        self.storage = storage(kernel, self.rows)
        self.output = Output(kernel, self.rows.name)
        s.plain = self._plain()

    def _plain(self) -> PipelineOrder:
        """Without overlap: a tile's rows are fetched, its scores, its P, and its values added."""
        rows, several = self.kernel.rows, self.queries.several
        math, softmax = rows[0].consumers[0], self.softmax_role
        roles = dict.fromkeys([*(pipeline.producer for pipeline in rows), math, softmax])
        setup, begin = (
            tuple(part for role in roles for part in by(role, key)) for key in ("setup", "begin")
        )
        queries = by(self.queries.pipeline.producer, "load_queries")
        return PipelineOrder(
            before=(*setup, *(() if several else queries)),
            item=begin if several else (),
            tiles=(
                *(queries if several else ()),
                *self.storage.steps,
                *by(math, "keep_queries", "qk", *(["release query"] if several else [])),
                *by(softmax, *self.rows.ahead, "load_scores", "release scores", "row_maximum",
                    "exponent", "rescale", "copy weights"),
                *by(math, "pv", "release weights",
                    *(f"release {pipeline.name}" for pipeline in rows)),
            ),
            after=by(softmax, "finish"),
        )  # fmt: skip


class Output:
    """O / l and LSE of all keys of a row, or of a part of them, in fp32, for the merge kernel."""

    def __init__(self, kernel: TensorMemoryKernel, rows: str) -> None:
        self.kernel, self.template = kernel, f"output/{rows}"

    def finish(self) -> None:
        """Add up the sums of a row's two threads, and store."""
        self.kernel.record(self.template, None, name="finish", uses=(Value("O"),))

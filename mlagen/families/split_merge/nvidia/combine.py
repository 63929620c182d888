"""Merging the parts of split MLA decode work on Hopper and Blackwell: the operations a schedule
arranges.

A *line* is half a row of the output, 256 columns, eight a lane. One warp has a line, or 2, 4, 8 or
16 share one, each taking every 2nd, 4th, 8th or 16th split; a block has 16 warps. What the merge of
a plan says of a block (`mlagen.families.mla_decode.plan`) decides which. Each warp finds the LSE of
all splits for itself.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.block_sizes import (
    BLOCK_ROWS,
    LINES_A_ROW,
    MERGE_BYTES,
    MERGE_WARPS,
)
from mlagen.dsl import (
    Operation,
    PipelineOrder,
    Signature,
    Tile,
    Value,
    at_least,
    by,
    exactly,
    record,
    touched,
)
from mlagen.dsl.signature import pack
from mlagen.errors import ScheduleError
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.families.split_merge.facts import MergeFacts, merge_arguments
from mlagen.targets.nvidia.dsl import PipelineSpace, WarpRole

FLOAT = 4
SPLITS = (1, 2, 4, 8)  # that a warp may have in flight
PARTS = 2  # times 128 columns: what a lane loads at once is four
# Tools find FlashMLA's kernel in a profile by a part of these names.
HOPPER = "mlagen_flash_fwd_mla_combine_kernel_sm90"
BLACKWELL = "mlagen_flash_fwd_mla_combine_kernel_sm100"


class MlaDecodeMerge:
    """The operations of one merge kernel over the schedule's registers (acc, weight, taken) and its
    room for the sums of warps. `symbol`: of the entry. `slot_rows`: query rows of a slot; 0: the
    call says how many, as on Blackwell, where a CTA pair leaves slots of 128."""

    def __init__(
        self,
        k: MlaDecodeMergeConfig,
        s: PipelineSpace,
        role: WarpRole,
        symbol: str,
        *,
        slot_rows: int,
    ) -> None:
        if role.threads != 32 * MERGE_WARPS or role.warps.start:
            raise ScheduleError(
                f"role {role.name!r} has warps {role.warps.start}..{role.warps.stop - 1}",
                hint=f"a block of the merge has {MERGE_WARPS} warps, all of one role",
            )
        allowed = (0,) if s.tmem.capacity else (BLOCK_ROWS, 0)
        if slot_rows not in allowed:
            raise ScheduleError(
                f"the merge has slots of slot_rows={slot_rows} query rows built in",
                hint=f"{' or '.join(map(str, allowed))}; with 0 the call says how many",
            )
        self.k, self.role = k, role
        line = k.d_v // LINES_A_ROW
        columns = line // 32
        splits = len(s.names("weight", exactly("registers", SPLITS, "splits in flight")))
        extents = {"acc": columns, "weight": splits, "taken": splits * columns}
        self.supply: dict[str, Any] = {
            "k": k, "role": role, "warps": MERGE_WARPS, "unrolled": splits, "parts": PARTS,
            "unrolled_log2": splits.bit_length() - 1, "parts_log2": PARTS.bit_length() - 1,
            "line_columns": line, "lane_columns": columns, "slot_rows": slot_rows,
            "sums": touched(
                s.smem.scratches["sums of warps"],
                at_least("bytes", MERGE_WARPS * line * FLOAT, "a line of each warp"),
            ), "merge_bytes": MERGE_BYTES,
            **{name: s.names(name, exactly("registers", n)) for name, n in extents.items()},
        }  # fmt: skip
        if k.sink:
            what = at_least("bytes", MERGE_WARPS * FLOAT, "a factor of each warp")
            self.supply["factors"] = touched(s.smem.scratches["factors"], what)
        for name, type, why in (
            ("count", ".b32", "splits"),
            ("split", ".b32", "this warp's next split"),
            ("sharing", ".b32", "warps that share a line"),
            ("whole", ".f32", "log2 of the sum of all splits"),
            ("lse_at", ".b64", "this row's LSE of the first split"),
            ("o_at", ".b64", "this lane's columns of the first split's O"),
            *((("factor", ".f32", "what this row's sink leaves of O"),) if k.sink else ()),
        ):
            self.supply[name] = s.named(name, type, 1, why)[0]
        s.symbol, s.facts = symbol, MergeFacts(running=False, slot_rows=slot_rows)
        s.signature = Signature(
            pack(*merge_arguments(k, slot_rows)),
            grid=(("merges", 1),),
            block=(role.warps.stop * 32, 1, 1),
            dependent=("partial_o", "partial_lse"),
            resident=2,
        )
        # What is loaded with a tile is the next one's; after the last there is nothing.
        s.plain = PipelineOrder(
            before=by(role.name, "setup", "load", "log_sum"),
            tiles=by(role.name, "add", "load"),
            after=by(role.name, "finish"),
        )

    def setup(self) -> None:
        """Which lines this block has, which of them this warp, where its splits lie; its sink."""
        self._record("setup", None)

    def load(self, tile: Tile | None = None) -> None:
        """LSE and O of the next splits, to registers."""
        self._record("load", tile, defines=(Value("parts"),))

    def log_sum(self) -> None:
        """L = log2 of the sum of exp2(LSE) of all splits; one without keys adds 0. O = 0. Also what
        a sink leaves of O, 1 / (1 + exp2(sink - L))."""
        self._record("log_sum", None, defines=(Value("O"),))

    def add(self, tile: Tile) -> None:
        """O += exp2(LSE - L) O of the loaded splits that have keys."""
        self._record("add", tile, uses=(Value("O"), Value("parts")), defines=(Value("O"),))

    def finish(self) -> None:
        """The sums of the warps that share a line, in order, times what a sink leaves, as bf16 to
        memory; LSE = L ln 2, or `empty_lse` of a row without keys."""
        rooms = tuple(
            Value(self.supply[room].name) for room in ("sums", "factors") if room in self.supply
        )
        self._record("finish", None, uses=(Value("O"),), defines=rooms, joins=True)

    def _record(self, name: str, tile: Tile | None, **more: Any) -> Operation:
        return record(
            Operation(name, f"split_merge/{name}.ptx.j2", tile, lambda at: self.supply, **more)
        )

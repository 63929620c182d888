"""MLA decode as a kind of problem that can be verified.

A kernel is launched by itself: what its blocks leave of split work is merged here, in fp64. The
kernel that merges it on a GPU is another artifact, verified by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.attention.latent.block_sizes import TOGETHER
from mlagen.attention.latent.facts import facts_of, order_of
from mlagen.attention.latent.made_up import LATENT_KINDS
from mlagen.attention.latent.order import SEESAW, Order
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.aiter_plan import AiterPlan, plan_aiter
from mlagen.families.mla_decode.aiter_run import run_aiter
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.inputs import MlaDecodeInputs
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.plan import MlaDecodeWork, plan_work
from mlagen.families.mla_decode.problem import TILE, MlaDecodeConfig
from mlagen.families.mla_decode.ragged import Ragged
from mlagen.families.mla_decode.rounded import rounded
from mlagen.families.mla_decode.unit import (
    HOPPER,
    Unit,
    cannot_put_together,
    unit_of,
)
from mlagen.family.covering import Call, Covering, tile_counts
from mlagen.family.kinds import Chosen, ProblemKind, Size, TileWalk, Trial
from mlagen.launch import Launcher, LaunchReport
from mlagen.problem.arrays import unwritten
from mlagen.problem.expected import Expected, Worst
from mlagen.problem.formats import ELEMENT_TYPES, scale_log2e

Array = npt.NDArray[Any]
ONE_TILE = 10  # items of one tile, for two blocks
UNSPLIT = 2**31 - 64  # keys of a split that no sequence is longer than


@dataclass(frozen=True, eq=False)
class DividedInputs:
    """Inputs, and how their work is divided: `split_keys` keys a split (0: as the plan has it for
    `blocks` that run at once). `q_lens`: new tokens of each sequence, packed; none: all.
    `together`: parts of a row block that their blocks put together."""

    inputs: MlaDecodeInputs
    split_keys: int = 0
    blocks: int = 1
    q_lens: tuple[int, ...] = ()
    together: int = 1

    @property
    def ragged(self) -> Ragged | None:
        """The call's tokens, where sequences have different numbers of them."""
        return Ragged.of(self.inputs, self.q_lens) if self.q_lens else None


@dataclass(frozen=True)
class MlaDecodeTrial(Trial):
    """A call of a decode kernel, its split work merged on the host."""

    divided: DividedInputs
    persistent: bool = False
    takes_in: bool = True
    aiter: bool = False
    order: Order = SEESAW
    unit: Unit = HOPPER
    compared: bool = True

    def uncompared(self) -> MlaDecodeTrial:
        return replace(self, compared=False)

    @property
    def inputs(self) -> MlaDecodeInputs:
        return self.divided.inputs

    @property
    def sizes(self) -> Mapping[str, Size]:
        lengths = tuple(int(length) for length in self.inputs.cache_lengths)
        divided = self.divided
        tokens = {"q_lens": divided.q_lens} if divided.q_lens else {}
        more = {"together": divided.together} if divided.together > 1 else {}
        return {"lengths": lengths, "split_keys": divided.split_keys, **more, **tokens}

    @property
    def numbers(self) -> Mapping[str, float]:
        return {"scale": self.inputs.scale}

    @property
    def walk(self) -> TileWalk:
        longest = int(self.inputs.cache_lengths.max())
        return TileWalk(-(-longest // self.order.tile), "lengths", self.order.tile)

    @cached_property
    def work(self) -> MlaDecodeWork:
        """As the blocks take it."""
        divided = self.divided
        return plan_work(
            self.inputs.config,
            self.inputs.cache_lengths,
            q_lens=divided.q_lens or None,
            blocks=divided.blocks,
            split_keys=divided.split_keys or None,
            persistent=self.persistent,
            takes_in=self.takes_in,
            unit=self.unit,
            together=divided.together,
        )

    @cached_property
    def aiter_plan(self) -> AiterPlan:
        """The same in AITER's form."""
        divided = self.divided
        return plan_aiter(
            self.inputs.config,
            self.inputs.cache_lengths,
            q_lens=divided.q_lens or None,
            workgroups=divided.blocks,
            split_keys=divided.split_keys or None,
        )

    def planned(self, artifact: Artifact) -> MlaDecodeTrial:
        facts = facts_of(artifact.manifest)
        return replace(
            self, persistent=facts.items == "several", takes_in=facts.combine == "fix_up",
            aiter=facts.items == "aiter", order=facts.order, unit=unit_of(artifact.manifest),
        )  # fmt: skip

    @property
    def launched(self) -> Mapping[str, int]:
        """The sizes that the launch's grid is told by."""
        if self.aiter:
            return {"workgroups": self.aiter_plan.workgroups}
        if self.work.shares is not None:
            return {"blocks": self.unit.ctas * (len(self.work.shares) - 1)}
        return self.unit.grid(len(self.work.items))

    def sequences(self, blocks: Iterable[int]) -> set[int]:
        """Those whose keys blocks of a launch read, of one CTA a work item; no such block: none."""
        items, shares = self.work.items, self.work.shares
        if self.aiter:
            items, shares = self.aiter_plan.work_info_set, self.aiter_plan.work_indptr
        firsts = np.arange(len(items) + 1) if shares is None else shares
        found = [items[slice(*firsts[at : at + 2]), 0] for at in blocks if at < len(firsts) - 1]
        return {int(sequence) for own in found for sequence in own}

    def oracles(self) -> tuple[Expected, ...]:
        splits = (self.aiter_plan if self.aiter else self.work).splits
        found: list[Expected] = []
        for oracle in (exact, rounded):
            expected = oracle(self.inputs, splits=splits, order=self.order)
            lse = replace(expected.lse, oracle=f"{expected.lse.oracle} LSE", output="lse")
            found += [expected.output, lse]
        ragged = self.divided.ragged
        return tuple(found if ragged is None else map(ragged.of_tokens, found))

    def run(
        self, artifact: Artifact, launcher: Launcher
    ) -> tuple[Mapping[str, Array], LaunchReport]:
        """From poisoned memory."""
        if facts_of(artifact.manifest).several and not (self.persistent or self.aiter):
            return self.planned(artifact).run(artifact, launcher)
        config, inputs = self.inputs.config, self.inputs
        ragged = self.divided.ragged or Ragged.of(inputs)
        tokens = int(ragged.kept.sum())
        rows = (tokens, config.num_heads)
        if self.aiter:
            o, lse, report = run_aiter(
                artifact, launcher, inputs, self.aiter_plan, ragged, compared=self.compared
            )
            outputs = {"o": o.reshape(*rows, config.d_v), "lse": lse.reshape(*rows, 1)}
            return {name: ragged.unpacked(found) for name, found in outputs.items()}, report
        work = self.work
        slots = max(work.slots, 1)
        output = partial(unwritten, compared=self.compared)
        lines, of_slots = tokens * config.num_heads, (slots, work.slot_rows)
        o = output((lines, config.d_v), ELEMENT_TYPES[config.output_dtype])
        lse = output((lines,), np.float32)
        partial_o = output((*of_slots, config.d_v), np.float32)
        partial_lse = output(of_slots, np.float32)
        tensors = {
            **self._tensors, "items": work.items, "o": o, "lse": lse, "partial_o": partial_o,
            "partial_lse": partial_lse, "arrivals": np.zeros(2 * slots, np.int32),
        }  # fmt: skip
        if work.together > 1 and self.unit.together == 1:
            raise cannot_put_together(work.together)
        if work.shares is not None:
            tensors["shares"] = work.shares
        numbers: dict[str, int | float] = {
            "max_pages": inputs.max_pages,
            "num_blocks": inputs.num_blocks,
            "lse_stride": work.lse_stride,
            "scale_log2e": scale_log2e(inputs.score_scale),
            "kv_scale": inputs.kv_scale,
        }
        args = artifact.manifest.args
        report = launcher.launch(
            artifact,
            tensors={arg.tensor: tensors[arg.tensor] for arg in args if arg.tensor},
            scalars={arg.name: numbers[arg.name] for arg in args if not arg.tensor},
            sizes=self.launched,
        )
        if self.compared:
            _merge(work, config.num_heads, o, lse, partial_o, partial_lse)
        o = o.reshape(*rows, config.d_v)
        if self.divided.q_lens:  # then lse is [H, tokens]
            lse = ragged.unpacked(lse.reshape(rows[::-1]).T[..., None])
        else:
            lse = lse.reshape(inputs.batch, config.num_heads, config.q_len, 1).swapaxes(1, 2)
        return {"o": ragged.unpacked(o), "lse": lse}, report

    @property
    def _tensors(self) -> Mapping[str, Array]:
        """The inputs as a call takes them."""
        ragged = self.divided.ragged
        return self.inputs.tensors if ragged is None else ragged.tensors(self.inputs.tensors)

    def place(self, worst: Worst) -> str:
        where = f"sequence {worst.batch}, token {worst.row}, head {worst.head}"
        return f"LSE of {where}" if worst.output == "lse" else f"{where}, column {worst.depth}"


def _merge(
    work: MlaDecodeWork, heads: int, o: Array, lse: Array, partial_o: Array, partial_lse: Array
) -> None:
    """Adds up what parts left; see `mlagen.families.split_merge.decode_problem`."""
    if not len(work.merges):
        return
    for slot, count, first, rows, above, place in np.unique(work.merges[:, :6], axis=0):
        logs = partial_lse[slot : slot + count, :rows].astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            top = np.where(np.isneginf(logs.max(axis=0)), 0.0, logs.max(axis=0))
            whole = top + np.log2(np.exp2(logs - top).sum(axis=0))
            weights = np.exp2(logs - np.where(np.isneginf(whole), 0.0, whole))
        seen = ~np.isneginf(logs)[:, :, None]
        parts = np.where(seen, partial_o[slot : slot + count, :rows].astype(np.float64), 0.0)
        o[first : first + rows] = (weights[:, :, None] * parts).sum(axis=0).astype(o.dtype)
        row = above + np.arange(rows)
        lse[place + row % heads * work.lse_stride + row // heads] = whole * np.log(2.0)


class MlaDecodeKind(ProblemKind):
    """Inputs from `mla_decode_inputs`; `split_keys` and `blocks` divide their work, and of each
    sequence's new tokens the call has the last `q_lens`."""

    sizes = ("batch", "max_length", "lengths", "split_keys", "blocks", "q_lens", "together")
    lists = ("lengths", "q_lens")
    data = tuple(LATENT_KINDS)
    uneven: ClassVar[Mapping[str, Any]] = {"lengths": (3, 260)}

    def inputs(
        self, problem: Mapping[str, Any], *, data: str, seed: int, **shape: Any
    ) -> DividedInputs:
        split_keys, blocks = shape.pop("split_keys", 0), shape.pop("blocks", 1)
        if split_keys < 0 or split_keys % TILE or blocks < 1:
            raise ConfigError(
                f"split_keys={split_keys}, blocks={blocks}",
                hint=f"split_keys is 0 or a multiple of {TILE}, blocks at least 1",
            )
        for name in self.lists:
            if isinstance(shape.get(name), int):
                shape[name] = (shape[name],)
        q_lens, together = tuple(shape.pop("q_lens", ())), shape.pop("together", 1)
        if not {"lengths", "max_length"} & shape.keys():
            shape["max_length"] = 300
        made = mla_decode_inputs(
            MlaDecodeConfig.from_fields(problem), data=data, seed=seed, **shape
        )
        if q_lens:
            Ragged.of(made, q_lens)  # which refuses what does not fit
        return DividedInputs(made, split_keys, blocks, q_lens, together)

    def simulated(
        self, artifact: Artifact, chosen: Chosen, *, seed: int, **shape: Any
    ) -> DividedInputs:
        planned = self.trial(self._simulated(artifact, seed, (), shape)).planned(artifact)
        groups = chosen(artifact.manifest.grid_for(planned.launched))
        only = planned.sequences(group[0] for group in groups)
        return self._simulated(artifact, seed, only, shape)

    def _simulated(self, artifact: Artifact, seed: int, only: Any, shape: Any) -> Any:
        return self.made(artifact, data="realistic", seed=seed, **shape, only=only)

    def trial(self, inputs: MlaDecodeInputs | DividedInputs) -> MlaDecodeTrial:
        given = inputs if isinstance(inputs, DividedInputs) else DividedInputs(inputs)
        return MlaDecodeTrial(given)

    def covering(self, artifact: Artifact) -> Covering:
        """Sequences for every number of tiles that the text tells apart, whole and cut, with none
        and with one key; then split ones. Where blocks take several items, two share them, and some
        are parts."""
        config = MlaDecodeConfig.from_fields(artifact.manifest.problem)
        most = max(tile_counts(artifact.manifest))
        order = order_of(artifact)
        tile = order.tile
        lengths = (0, 1, *(tile * n + n for n in range(1, most + 2)))
        if config.compute == "fp8":
            lengths += (9 * tile + 9,)  # a ring of four tiles turns twice
        late: tuple[int, ...] = (3, 4 * TILE + 4)
        if tile < TILE:  # tiles that end where the plan's do not
            late += (tile * 2, tile * 3)
        if order.running:  # by waves, code that masks is passed by where a tile is whole
            lengths += tuple(tile * n for n in range(1, most + 2))
        if order.running and config.causal and config.q_len > 2:  # two tiles are cut
            lengths += tuple(tile * n + 1 for n in range(1, most + 2))
        limits: tuple[str, ...] = ("a trap behind each loop, which no run may reach",)
        if not order.running and config.q_len == 1 and not config.cut_at_start:
            limits += (
                "cuts of tiles before a sequence's last one: only more new tokens, or a window, "
                "cut them",
            )
        if config.window and -(-(config.window + config.q_len + tile - 2) // tile) < most:
            limits += (f"passes for more tiles than {config.window} keys of a window lie in",)
        if config.chunk:
            limits += ("masks of a chunk's beginning in tiles that no chunk can begin in",)
        whole: dict[str, Any] = {"lengths": lengths}
        parts: dict[str, Any] = {"lengths": late, "split_keys": 2 * TILE}
        facts = facts_of(artifact.manifest)
        if facts.several:
            gang = -(-config.num_heads * config.q_len // facts.rows)
            whole |= {"split_keys": UNSPLIT, "blocks": 2 * gang}
            if facts.combine != "fix_up":
                # Blocks take no parts in. Items of one tile turn the ring of keys, too.
                whole |= {"lengths": (*lengths, *(TILE,) * ONE_TILE)}
                parts |= {"blocks": 2 * gang}
            else:
                parts = {"lengths": (700, 700, 700), "blocks": 2 * gang}
        calls = [Call("realistic", whole), Call("late_max", parts)]
        if facts.together > 1:
            for n in TOGETHER[1:]:
                if n <= facts.together:
                    calls.append(Call("realistic", {"lengths": (3, 4 * TILE + 4), "together": n}))
            limits += ("slices that are left over: who asks gives way to other blocks here",)
        if order.running:  # by waves, maxima move in any tile
            calls.append(Call("late_max", whole))
        if config.q_len > 1 and order.running:  # one new token sees the last tile whole
            calls.append(Call("realistic", whole | {"q_lens": _one_token(lengths)}))
        if config.cut_at_start and order.running:  # parts of all sizes whose first tiles are cut
            parts = whole | {"lengths": _cut_lengths(config)}
            calls += [
                Call("realistic", parts | {"split_keys": TILE * n})
                for n in range(1, -(-most * tile // TILE) + 1)
            ]
        return Covering(tuple(calls), limits)


def _cut_lengths(config: MlaDecodeConfig) -> tuple[int, ...]:
    """Lengths at which windows of a sequence's tokens begin in one tile and in two, or some of them
    in the next chunk."""
    if config.window:
        return tuple(config.window + config.q_len - 1 + n for n in (10, 31, 63))
    return tuple(config.chunk + n for n in (1, config.q_len // 2 + 1, 40, 72, config.chunk + 1))


def _one_token(lengths: tuple[int, ...]) -> tuple[int, ...]:
    """One new token of each sequence, and none of the last one."""
    return (*(1 for _ in lengths[:-1]), 0)


KIND = MlaDecodeKind()

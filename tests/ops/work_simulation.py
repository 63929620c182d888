"""A persistent MLA prefill kernel in fp64: it does the work items that it is handed."""

from __future__ import annotations

import numpy as np

from mlagen.artifact import Arg, GridDim
from mlagen.attention.prefill.facts import PrefillFacts
from mlagen.attention.prefill.work import WorkItem
from mlagen.codegen.manifest import plain_facts
from mlagen.families.mla_prefill.gfx950.form import aiter_signature, signature
from mlagen.launch import LaunchReport


def artifact_of(make_artifact, config, *, persistent=True, aiter=False):
    """An artifact of the problem with the arguments of its form, and no code that runs."""
    taken = aiter_signature(config) if aiter else signature(config, persistent=persistent)
    facts = PrefillFacts.of(config, "aiter" if aiter else "several" if persistent else "one")
    return make_artifact(
        kernel="mla",
        family="mla_prefill",
        config=config,
        args=tuple(
            Arg(a.name, a.offset, a.size, a.kind, a.access, a.dtype) for a in taken.arguments
        ),
        kernarg_bytes=taken.kernarg_bytes,
        grid=tuple(GridDim(size, tile) for size, tile in taken.grid),
        facts=plain_facts(facts),
    )


class WorkSimulation:
    """A launcher for one call's inputs. Only the work comes from what is launched; `spoil` gets
    the items and may return others."""

    def __init__(self, inputs, spoil=lambda items: items):
        self.inputs, self.spoil, self.launches = inputs, spoil, []

    def launch(self, artifact, *, tensors, scalars, sizes):
        names = {arg.name for arg in artifact.manifest.args}
        assert names == tensors.keys() | scalars.keys()
        for name in ("o", "partial_o", "partial_lse"):
            assert np.isnan(tensors[name].astype(np.float32)).all()
        self.launches.append((tensors, scalars, sizes))
        items = [WorkItem.of_words(words) for words in tensors["work_info"]]
        for item in self.spoil(items):
            self._do(item, tensors, "page_list" in names)
        return LaunchReport("simulated", (sizes["workgroups"], 1, 1), (512, 1, 1), 0.0)

    def _do(self, item, tensors, listed):
        inputs, config = self.inputs, self.inputs.config
        s = inputs.sequences[item.batch]
        size = max(config.page_size, 1)
        first_row = s.first_row if config.ragged else s.index * inputs.seq_len
        before = [other.keys for other in inputs.sequences[: s.index]]
        first_block = sum(-(-keys // size) for keys in before)
        if config.page_size and not listed:
            first_block = s.index * inputs.page_table.shape[1]
        begin = (item.kv_start - first_block) * size
        end = min((item.kv_end - first_block) * size, s.keys)
        rows = np.arange(item.qo_start, item.qo_end) - first_row
        k, v = inputs.key_rows(s, config.kv_head_of(item.head))
        keys = np.arange(begin, end)
        q = inputs.queries(s, rows, item.head).astype(np.float64)
        scores = inputs.score_scale * q @ k[keys].astype(np.float64).T
        seen = config.mask.visible(s.start_pos + rows[:, None], keys[None, :])
        scores = np.where(seen, scores, -np.inf)
        top = scores.max(axis=1, initial=-np.inf)
        weights = np.exp(scores - np.where(np.isneginf(top), 0.0, top)[:, None])
        total = weights.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            o = inputs.v_scale * (weights @ v[keys].astype(np.float64)) / total[:, None]
            log_sum = top + np.log(total)
        if item.partial:  # a row that sees nothing has NaN, as AITER's kernel leaves it
            at = slice(item.partial_o_loc, item.partial_o_loc + len(rows))
            tensors["partial_o"][at, item.head] = o
            tensors["partial_lse"][at, item.head] = np.where(total > 0, log_sum, -np.inf)
            return
        o, log_sum = np.where(total[:, None] > 0, o, 0.0), np.where(total > 0, log_sum, -np.inf)
        out = tensors["o"].reshape(-1, config.num_heads, config.depth)
        out[item.qo_start : item.qo_end, item.head] = o.astype(out.dtype)
        if not config.lse:
            return
        if config.ragged:
            tensors["lse"][item.head, item.qo_start : item.qo_end] = log_sum
        else:
            tensors["lse"][s.index, item.head, rows] = log_sum

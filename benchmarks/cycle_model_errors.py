"""The cycle model held against measurements of AITER's kernels: the tables of docs/timing.md.

    python benchmarks/cycle_model_errors.py FOLDER [--history HISTORY] [--constant NAME=VALUE …]
        [--fit] [--json]

FOLDER has AITER's `fmha_v3_fwd/` and `mla/`; HISTORY has `COMMIT/hsa/gfx950/…` with the objects
that were current when each measurement was made. `--fit` fits the energies of every corner again.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from cycle_model import decode_validation as d
from cycle_model import own
from cycle_model import validation as v
from cycle_model import validation_text as text
from cycle_model.aiter_prefill import KERNELS
from cycle_model.ladder import Shape, beside

from mlagen.cli.printing import print_facts, print_json, print_table, say
from mlagen.cli.simulate import machine_of
from mlagen.errors import MissingError
from mlagen.timing import Machine

SCHEMA = 3  # of the report: names and times are those of the prefill and decode tables


def recording(name: str) -> None:
    print(f"recording {name}", file=sys.stderr)


def held_against(folder: str, history: str | None, fit: bool, on: Machine) -> tuple[Any, ...]:
    """The report, its facts and its tables."""
    shape = Shape("", 16, 64, 8192)
    library, decoders = (kind(folder, history, recording) for kind in (v.Library, d.DecodeLibrary))
    found, decode = v.verdicts(library, on), d.decode_verdicts(decoders, on)
    pairs, clocks = v.ratios(found), v.clock_verdicts(on)
    schedules = v.schedule_ratios(clocks)
    theirs = {name: library.ladder(name) for name, kernel in KERNELS.items() if not kernel.causal}
    ours = [(case, case.ladder()) for case in own.KERNELS]
    kernels = [x.row(shape, on) for x in (*theirs.values(), *(ladder for _, ladder in ours))]
    compared = [beside(ladder, theirs[case.beside], shape, on) for case, ladder in ours]
    fitted = v.fit_corners(library) if fit else []
    report = {"points": found, "ratios": pairs, "clocks": clocks, "schedules": schedules,
              "kernels": kernels, "beside": compared, "decode": decode, "fit": fitted,
              "substitutes": sorted(library.substitutes | decoders.substitutes)}  # fmt: skip
    facts = [*text.facts(found, pairs, clocks, schedules), *d.decode_facts(decode)]
    tables = [text.clocks_table(clocks), text.schedules_table(schedules),
              text.points_table(found, library.substitutes), text.ratios_table(pairs),
              text.kernels_table(kernels, shape), text.beside_table(compared),
              text.bound_table(compared), d.decode_table(decode, decoders.substitutes),
              *([text.fit_table(fitted)] if fit else [])]  # fmt: skip
    return report, facts, tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--history", metavar="HISTORY")
    parser.add_argument("--constant", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    on = machine_of(options.constant)
    try:
        report, facts, tables = held_against(options.folder, options.history, options.fit, on)
    except MissingError as error:
        parser.error(f"{error.message}; {error.hint}")
    if options.json:
        print_json("benchmark.cycle-model", report, version=SCHEMA)
        return
    print_facts(facts)
    for table in tables:
        say()
        print_table(table.title, table.columns, table.rows)


if __name__ == "__main__":
    main()

"""Prints the table of docs/oracles_mla_decode.md on products of e4m3: errors over bounds."""

from mla_decode_e4m3_simulation import FAULTS, simulate

from mlagen.attention.latent.made_up import LATENT_KINDS
from mlagen.attention.latent.order import HOPPER_E4M3
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.rounded import rounded
from mlagen.problem.expected import compare

CONFIG = MlaDecodeConfig(8, dtype="fp8_e4m3", cache_dtype="fp8_e4m3", compute="fp8")


def main() -> None:
    print("| data | kernel | O, exact | O, rounding | LSE, exact | LSE, rounding |")
    print("|---|---|---|---|---|---|")
    rows = [(data, None) for data in LATENT_KINDS] + [(data, f) for f, data in FAULTS.items()]
    for data, fault in rows:
        inputs = mla_decode_inputs(CONFIG, lengths=(300, 640, 1, 65), data=data)
        output, lse = simulate(inputs, fault=fault)
        both = [oracle(inputs, order=HOPPER_E4M3) for oracle in (exact, rounded)]
        ratios = [compare(one.output, output).max_ratio for one in both]
        ratios += [compare_lse(one.lse, lse).max_ratio for one in both]
        print(f"| {data} | {fault or 'honest'} | " + " | ".join(f"{r:.2g}" for r in ratios) + " |")


if __name__ == "__main__":
    main()

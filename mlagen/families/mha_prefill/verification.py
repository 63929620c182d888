"""MHA prefill as a kind of problem that can be verified."""

from mlagen.attention.prefill.verification import PrefillKind
from mlagen.families.mha_prefill.kernel import MhaKernel
from mlagen.families.mha_prefill.made_up import KINDS, mha_inputs
from mlagen.families.mha_prefill.problem import MhaConfigV2

KIND = PrefillKind(MhaConfigV2, MhaKernel, mha_inputs, tuple(KINDS))

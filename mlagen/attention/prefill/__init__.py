"""What MHA and MLA prefill share: the problem's base, inputs, oracles, planned work, callables."""

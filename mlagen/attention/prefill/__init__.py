"""What families of prefill share: the problem's base, inputs, oracles, planned work, callables."""

"""What families of attention share: masks, made-up data, and the common parts of prefill."""

"""What families of attention share: masks, made-up data, the common parts of prefill, and those of
attention over latent rows."""

"""What families of attention share: masks, made-up data, and what MHA and MLA prefill have both."""

"""tcgen05: tensor memory, and the tensor core of sm_100a that works on it."""

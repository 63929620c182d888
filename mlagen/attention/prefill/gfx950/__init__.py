"""Operations on gfx950 that prefill kernels share, for schedules to arrange."""

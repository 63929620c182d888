"""Operations on Hopper that kernels over latent rows share, for schedules to arrange."""

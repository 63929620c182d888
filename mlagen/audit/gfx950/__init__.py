"""Static checks of gfx950 machine code, whoever wrote it: all paths, no inputs."""

"""Kernels on staggered grids: advection, cells and faces, turbulence."""

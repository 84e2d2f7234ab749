"""Kernels of pictures: they are no part of the solver."""

"""Shared numba functions on plain arrays: no classes, no policy, no MPI."""

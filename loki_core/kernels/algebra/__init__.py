"""Kernels of linear algebra: envelopes, sparse rows, multigrid."""

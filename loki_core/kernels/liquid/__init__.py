"""Kernels of liquids of particles on a grid, and of their surface."""

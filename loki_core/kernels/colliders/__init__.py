"""Kernels of meshes: distances, and what of cells and faces they close."""

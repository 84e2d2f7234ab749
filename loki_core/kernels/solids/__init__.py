"""Kernels of bodies: strains, frames, and the system that joins them."""

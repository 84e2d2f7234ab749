"""Kernels of particles: neighbours, fluids made of them, droplets."""

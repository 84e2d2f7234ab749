"""Kernels on sparse blocks of voxels: tables of them, samples, sorting into them."""

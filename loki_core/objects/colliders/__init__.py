"""Meshes and level sets that others cannot enter."""

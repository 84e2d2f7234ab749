"""Liquids of particles on a grid."""

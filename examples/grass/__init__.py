"""Gusts of wind run over a meadow."""

"""Kernels that know no subject: small vectors, eight lanes, random numbers, curves, rows."""

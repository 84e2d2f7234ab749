"""Examples, validation cases and benchmarks of Loki, as an installed wheel carries them."""

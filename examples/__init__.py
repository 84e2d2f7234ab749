"""The gallery: one folder per scene, each with its setup and a `build` function."""

"""Objects of particles."""

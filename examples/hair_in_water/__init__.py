"""Hair under water."""

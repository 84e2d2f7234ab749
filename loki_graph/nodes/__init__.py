"""The nodes that come with Loki, one idea in a file; importing a module registers its nodes."""

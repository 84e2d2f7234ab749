"""How Loki's data leaves the process: messages, frame caches, checkpoints and exchange formats."""

"""The `wtloki` command: run, explain, check, inspect and preview without a host."""

"""Speed and memory, measured as ratios in one run; each module is one benchmark."""

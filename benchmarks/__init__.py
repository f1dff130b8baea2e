"""Speed and memory, measured on this machine: `python -m benchmarks`. Nothing here asserts."""

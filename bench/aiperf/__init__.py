"""Time to first token as `aiperf` measures it: NVIDIA's load generator instead of our own."""

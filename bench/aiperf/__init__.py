"""Measures time to first token with NVIDIA's load generator `aiperf` instead of our own."""

"""Measures time to first token with NVIDIA's load generator `aiperf`, not the project's own."""

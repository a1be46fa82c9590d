"""Measures the simulator's error: the same small workloads are run over HTTP and simulated."""

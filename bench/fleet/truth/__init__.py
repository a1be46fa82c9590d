"""Measures the simulator's error: runs the same small workloads over HTTP and in the simulator."""

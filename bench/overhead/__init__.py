"""Measures the CPU time, latency and memory that Hedgerow and other routers need."""

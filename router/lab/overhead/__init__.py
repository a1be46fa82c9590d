"""Measures the latency and the CPU time that Hedgerow adds in front of a fleet."""

"""Benchmarks: each prints one table and says by which method it came about."""

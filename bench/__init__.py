"""Benchmarks. Each prints one table, and states the method that produced its figures."""

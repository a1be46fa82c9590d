"""Benchmarks. Each prints its results as tables and states the method that produced the figures."""

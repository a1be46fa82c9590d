"""Measures the benefit of routing: a fleet's time to first token, per policy and per peer."""

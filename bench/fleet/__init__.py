"""Measures the benefit of routing: a fleet's time to first token with each policy and router."""

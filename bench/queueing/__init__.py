"""Measures the cost of the admission queue: CPU per arrival and dispatch, by order and depth."""

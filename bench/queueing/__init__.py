"""Measures the admission queue: CPU per arrival and dispatch, for every order and depth."""

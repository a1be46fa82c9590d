"""Measures how much uploads of files, and batches, slow down other requests."""

"""Measures how much files and batches slow down other requests."""

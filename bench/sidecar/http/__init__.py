"""Measures several router processes in front of one fleet of emulated engines."""

"""Forecasts of one series of windows, and their errors on held-out windows."""

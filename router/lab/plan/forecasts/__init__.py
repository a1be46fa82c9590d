"""Forecasts of the demand for one model in one region, and their errors on held-out windows."""

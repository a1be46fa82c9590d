"""Computes the advised numbers of replicas from the observed demand and its forecasts."""

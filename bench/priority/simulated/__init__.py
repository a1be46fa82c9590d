"""Simulates every order with the same fleet, traffic and seeds."""

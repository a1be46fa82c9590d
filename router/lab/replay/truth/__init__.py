"""Compares a log with a simulation of the same requests, and decides whether to trust the
simulation.
"""

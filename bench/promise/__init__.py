"""Simulates the coverage and the width of the 90 % intervals of estimated TTFTs."""

"""Measures every table of the benches anew, and keeps them here; `make results` runs it."""

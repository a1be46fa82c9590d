"""Runs all benches and keeps their tables in this folder; `make results` starts it."""

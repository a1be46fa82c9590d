"""Readers of public request traces, for the benches."""

from bench.traces.public import PublicTrace

__all__ = ["PublicTrace"]

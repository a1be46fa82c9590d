"""Measures a router's cost beside its peers': CPU per request and token, latency, memory."""

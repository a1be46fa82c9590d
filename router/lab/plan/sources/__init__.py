"""Reads the demand from access logs and other traces, or from a Prometheus server."""

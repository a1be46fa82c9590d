"""Reads the demand from access logs, or from a Prometheus server."""

"""Formats the advice as a table, JSON, an HTML page, and gauges for an autoscaler."""

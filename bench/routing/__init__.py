"""What a routing decision costs: `python -m bench.routing`."""

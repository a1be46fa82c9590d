"""What a router costs: CPU per request and per token, latency added, memory, beside its peers."""

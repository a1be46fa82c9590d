"""Every order on the simulated fleet, the same traffic and seeds."""

"""Every order on the simulated fleet, with the same traffic and seeds."""

"""From the observed demand to the advised replicas. Pure."""

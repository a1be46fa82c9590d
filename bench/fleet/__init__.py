"""What routing is worth: time to first token of a fleet, policy by policy and peer by peer."""

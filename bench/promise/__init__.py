"""The coverage and the width of the estimated TTFT's 90 % intervals, simulated."""

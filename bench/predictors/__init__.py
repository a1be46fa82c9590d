"""The error of the learned predictions of TTFT and TPOT: on measured timings, simulated, logged."""

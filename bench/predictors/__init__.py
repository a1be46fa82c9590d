"""Measures how wrong the learned predictions of TTFT and TPOT are."""

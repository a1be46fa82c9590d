"""The parts of `router.replay.calibrate`: samples of a log, and the fit of coefficients to these
samples.
"""

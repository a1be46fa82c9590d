"""The parts of `router.replay.calibrate`: samples from a log, and the fit to them."""

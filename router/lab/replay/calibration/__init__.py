"""The parts of `router.lab.replay.calibrate`: samples of a log, and the fit of coefficients."""

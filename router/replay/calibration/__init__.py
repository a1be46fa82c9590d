"""What `router.replay.calibrate` is made of: samples from a log, and the fit to them."""

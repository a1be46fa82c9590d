"""`hedgerow bench gain`: the worth of the tokens that arrive in time, at several loads."""

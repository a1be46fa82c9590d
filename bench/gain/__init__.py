"""`hedgerow bench gain`: how many tokens come in time, by class, from half load to overload."""

"""What the admission queue costs: CPU per arrival and dispatch, by order policy and depth."""

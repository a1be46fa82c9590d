"""What a second copy is worth: time to first token with and without hedging, and what it costs."""

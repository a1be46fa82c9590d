"""The maximum number of tokens of a request at each replica, and what it means for routing."""

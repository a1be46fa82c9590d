"""Shared building blocks of the engine files, and the registry through which the router finds
them."""

"""Measures every order over real sockets: emulated engines, the router, and clients."""

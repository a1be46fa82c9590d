"""Every order over real sockets: emulated engines, the router in front of them, and its clients."""

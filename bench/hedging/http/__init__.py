"""The hedging bench over real sockets: an emulated fleet, Hedgerow, and other proxies."""

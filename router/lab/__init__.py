"""What runs without traffic: emulator, simulator, readers of recorded traffic, and their commands.

Nothing that serves a request imports this package.
"""

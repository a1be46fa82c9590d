"""Hostile clients and replicas against the compiled program in a process of its own.

What is watched: the CPU time of the event loop's thread between two ticks, resident memory, that
other clients are served meanwhile, and that nothing is left when the attack is over.
"""

"""Attacks on the compiled program, in its own process, by hostile clients and replicas.

Each attack checks four things: the CPU time of the event loop's thread between two ticks, resident
memory, service to other clients during the attack, and that all resources are released afterwards.
"""

"""What a log says beside what a simulation of the same requests gives, and what follows from it."""

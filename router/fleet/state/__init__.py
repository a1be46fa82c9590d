"""The parts of a replica's state. Each part has one writer, which its docstring names."""

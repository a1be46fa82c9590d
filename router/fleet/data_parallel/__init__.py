"""Data-parallel ranks: several engines behind one address, each a replica of its own."""

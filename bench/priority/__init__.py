"""Measures the benefit of the router's queue and the cost of its order: simulated, and over HTTP.

The part `goals` judges the shipped queue, by intervals over seeds. The other parts compare orders:
one fleet of 160 slots, kept full by work of the classes batch and low. Each part prints one table,
with one row per order policy and one without a queue. Reading order: `orders`, `traffic` (the
requests), `rows` (the results), `goals`, `found`, and the parts, each with a module `part`
(`add_arguments`, `run`).
"""

"""Measures the benefit of the router's queue and the cost of its order, simulated and over HTTP.

The part `goals` judges the queue's default settings, by confidence intervals over seeds. The other
parts compare the policies for the queue's order. Their engines run at most 160 requests at a time
(slots), and requests of the classes batch and low keep all slots busy. Each part prints one table.
Reading order: `orders`, `traffic` (the requests), `rows` (the results), `goals`, `found`, and the
parts, each with a module `part` (`add_arguments`, `run`).
"""

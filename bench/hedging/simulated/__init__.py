"""Hedging on a hundred simulated replicas, with and without it, the same traffic and seeds.

Reads in this order: `world` (fleet and traffic), `task` (one run and its figures), `cases` (what is
promised, and whether it holds), `policies`, `frontier` and `harm` (what else is to be known),
`page` (the plots).
"""

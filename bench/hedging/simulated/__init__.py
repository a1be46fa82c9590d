"""Runs a hundred simulated replicas with and without hedging, with equal traffic and seeds.

Reading order: `world` (fleet and traffic), `task` (one run and its figures), `cases` (the goals and
whether they hold), `policies`, `frontier` and `harm` (further results), `page` (the plots).
"""

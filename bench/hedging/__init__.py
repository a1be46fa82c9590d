"""Measures benefit and cost of hedging: simulated on a hundred replicas, and over HTTP.

`cli` runs the requested parts. Each part is a package with a module `part` (`add_arguments`,
`run`). It returns tables, with the verdicts of `goals`.
"""

"""Measures benefit and cost of hedging: simulated on a fleet of nodes, and over HTTP.

`cli` runs the requested parts. Each part is a package with a module `part` (`add_arguments`,
`run`). It returns tables with verdicts. `stragglers` draws when and where an engine is slow.
"""

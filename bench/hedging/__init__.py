"""Measures benefit and cost of hedging (a second copy of a late request), simulated and over HTTP.

`cli` runs the requested parts. Each part is a package with a module `part` (`add_arguments`,
`run`). A part returns tables with verdicts on its goals. `stragglers` draws when and where an
engine is slow.
"""

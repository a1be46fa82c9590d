"""The engines that Hedgerow supports: one file per engine, which defines the value ENGINE.

Everything that the router does differently for one engine is defined in its file. Code that engines
share is in `common`; `common/registry.py` finds the files by listing this package. ARCHITECTURE.md
says how to add an engine.
"""

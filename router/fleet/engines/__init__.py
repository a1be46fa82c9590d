"""The engines that Hedgerow knows: one file each, which makes the one value ENGINE.

Everything that the router does differently for one engine is said in that file. What engines share
is in `common`; `common/registry.py` finds the files by listing this package. ARCHITECTURE.md says
how to add an engine.
"""

"""Mutation tests: whether the tests of a module notice when it is wrong."""

"""Mutation tests: do the tests of a module notice an error in it?"""

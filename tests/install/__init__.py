"""Installs the program in fresh environments, as a user would, and tests each installation.

`make check-install` runs `python -m tests.install`. It needs Python's standard library only,
because it also runs where nothing is installed. The `test_*.py` files test its checks; pytest runs
them with the other tests.

- `pythons`: the CPython versions found on this machine.
- `environments`: virtual environments under build/install, and commands run in them.
- `members`: what an sdist and a wheel must contain.
- `names`: top-level import names that another distribution also owns.
- `session`: starts the installed command in an empty directory and sends it requests.
"""

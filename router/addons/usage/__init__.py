"""Budgets of keys, and the file that keeps the usage of tenants over restarts.

`budgets` checks and charges the requests of keys, by the rules in `spending`. `writer` writes what
`pending` has collected to the SQLite file of `database`, in a thread. `kept_accounts` and `addon`
connect them with the router, which counts usage since its start, and limits rates, without this
package.
"""

from router.addons.usage.addon import UsageAddon as make

__all__ = ["make"]

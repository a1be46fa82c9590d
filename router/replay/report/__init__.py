"""The reports of a replay: statistics, tables, plots, an HTML page, and JSON.

- `summary` records the statistics of a simulation in bounded memory; `run` has them together with
  the scenario.
- `columns` defines the columns of the tables; `table` formats them.
- `findings` states the main results in sentences.
- `plots` draws, `html` builds the page, `document` the JSON.
"""

"""The reports of a replay: statistics, tables, plots, an HTML page, and JSON.

- `summary` records the statistics of a simulation in bounded memory; `run` has the statistics and
  the scenario of a run.
- `columns` defines the columns of the tables; `table` formats the tables.
- `findings` states the main results in sentences.
- `plots` draws the plots, `html` builds the page, and `document` builds the JSON.
"""

"""What a person gets to see of a replay: figures, tables, plots, one HTML file.

`summary` listens to a simulation and keeps figures in bounded memory; `run` is a summary and what
it is of; `columns` says which figures stand in a table, `table` writes it down; `findings` says in
sentences what follows; `plots` draws, `html` puts it all on one page, `document` is the same for
machines.
"""

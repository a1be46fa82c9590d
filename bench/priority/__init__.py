"""What the queue in the router brings, and what its order costs: simulated, and over HTTP.

One fleet of 160 slots, kept full by batch and low work; one table a part, a row for every order
policy and one for no queue at all. Reads in this order: `orders`, `traffic` (who asks for what),
`rows` (what came of it), `goals`, `found`, and the parts, each with a module `part`
(`add_arguments`, `run`).
"""

"""What the second copy brings and costs: simulated on a hundred replicas, and over HTTP.

`cli` runs the parts that are asked for; each part is a package of its own with a module `part`
(`add_arguments`, `run`) and gives what it `report`s: tables, and the `goals` it was judged by.
"""

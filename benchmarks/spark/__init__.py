"""How fast Spark reads the journal, works on large events and writes them back: what ``make bench-spark`` measures.

Each scenario gives one or more lines of the same form as those of ``make bench``. What it is compared with, its floor,
is measured in the same run and turn by turn with it, by a session that is warm.
"""

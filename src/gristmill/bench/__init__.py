"""Bench: measurements of this machine, beside other libraries (`gristmill bench`).

fresh_process.py     measures one call in a separate process
machine.py           describes the machine, the versions and the command
corpora.py           finds, decompresses and caches the corpora
large_corpus.py      makes a large corpus from a small one
tables.py            Markdown tables and the files of a result
"""

"""Bench: measurements of this machine, beside other libraries (`gristmill bench`).

The actions, one function each:

train.py               `bench_train`: training
encode.py              `bench_encode`: encoding
encode_report.py       its page
pipeline.py            `bench_pipeline`: from a text file to a token file
pipeline_report.py     its page
scaling.py             `bench_scaling`: gristmill by threads and by size of the corpus
ablation/              `run_ablation`: what each optimization of training is worth

The systems that are compared, one adapter per library:

rivals/                training
encoders/              encoding
pipelines/             whole pipelines

What the actions share:

fresh_process.py       measures one call in a separate process
contest.py             runs the rows of a table in alternation
adapters.py            finds the installed systems
corpora.py             finds, decompresses and caches the corpora
large_corpus.py        makes a large corpus from a small one
reference_digests.py   caches the digests of the merges of `tokenizers`
machine.py             describes the machine, the versions and the command
published.py           figures that other people published
tables.py              Markdown tables and the files of a result
terminal.py            the same tables for a terminal
charts.py              bar and line charts as SVG
pages.py               prints and writes a page
"""

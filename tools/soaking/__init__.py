"""Mixed work under load, and what must not grow meanwhile. `tools/soak.py` is the command.

In reading order:

    kind.py        `Kind`: one kind of work, as operations that check their own results
    inputs.py      the corpora, tokenizers and shards that all kinds share
    tokenizers.py  threads that share tokenizers
    training.py    tokenizers trained with a memory limit, so that counting spills to disk
    encoding.py    `gristmill encode` killed and run again
    models.py      small models interrupted and resumed
    pages.py       clients of `gristmill view`
    host.py        a long-lived process that runs kinds in threads
    conductor.py   starts the hosts, lets them pause, collects what they report
    sampler.py     memory, open files and threads of a process; what a run left behind
    report.py      the bars, as Markdown and JSON

To add a kind, write a module with a subclass of `Kind` and add it to `KINDS`.
"""

KINDS = {
    "tokenizers": "soaking.tokenizers:Tokenizers",
    "training": "soaking.training:Training",
    "encoding": "soaking.encoding:Encoding",
    "models": "soaking.models:Models",
    "pages": "soaking.pages:Pages",
}

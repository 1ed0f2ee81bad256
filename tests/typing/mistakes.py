"""Mistakes that both type checkers must report: an ignore comment that is not needed is an error in `make check`."""

from __future__ import annotations

import gristmill as gm

print(gm.train_tokeniser)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
print(gm.lm.trian)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
print(gm.posterior.Alarms)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]

gm.lm.train("shards", out="run", max_step=200)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
gm.lm.train("shards", out="run", max_steps="200")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
gm.lm.train("shards", out="run", strategy="dp")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
gm.lm.train("shards", out="run", resume="always")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
gm.lm.generate("run", "Once", max_token=10)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
gm.lm.sample_texts("run", temprature=1.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
gm.count_words("corpus.txt", text_feild="body")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
gm.encode_corpus(
    "corpus.txt",
    gm.Tokenizer.load("tokenizer.json"),
    out="shards",
    val_fractoin=0.1,  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
)

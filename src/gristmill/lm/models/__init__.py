"""models: what can be trained. A model owns a folder: its options, its data, its loss, its statistics, its text.

In reading order:

    config.py                 ModelConfig: what a model declares without torch
    model.py                  Model: what the trainer needs of a network
    registry.py               register_model, and the models there are
    gpt/                      a decoder that continues text
    vae/                      a sequence VAE
    requests.py               TextRequest: what a model is asked to write
    generation.py             text from a model, token by token
    rows.py                   many texts at once
    sampling.py               the choice of the next token
    stop_strings.py           where a text ends
    foreign.py                ForeignModel: a model in the words of another library
    linear_cross_entropy.py   the loss without all logits in memory

A model of your own is one file and a call of `register_model`: docs/own-models.md, examples/08_own_model.py.
"""

"""models: what can be trained. Each model owns a room: its options, its data, its loss, its statistics, its text.

    registry.py    register_model, and the models there are
    config.py      ModelConfig: what a model declares without torch
    model.py       Model: what the trainer needs of a network
    gpt/           a decoder that continues text
    vae/           a sequence VAE
    generation.py  text from a model, token by token
    sampling.py    which token comes next
    requests.py    what a model is asked to write
    linear_cross_entropy.py   the loss without all logits in memory

A model of your own is one file and a call of `register_model`: examples/08_own_model.py.
"""

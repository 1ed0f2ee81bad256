"""models: the models that can be trained.

Each model has a folder with its options, data, loss, statistics and text generation. In reading order:

    config.py                 ModelConfig: the torch-free description of a model
    model.py                  Model: the interface of networks
    registry.py               register_model, and the registered models
    gpt/                      a decoder that continues text
    vae/                      a sequence VAE
    requests.py               TextRequest: prompts and options of text generation
    generation.py             text generation, token by token
    token_stream.py           one text as tokens with their probabilities
    rows.py                   generation of many texts at once
    sampling.py               the choice of the next token
    stop_strings.py           detection of stop strings
    foreign.py                ForeignModel: a model in the format of another library
    linear_cross_entropy.py   the loss without all logits in memory

Your own model is one file and a call of `register_model`: docs/own-models.md, examples/08_own_model.py.
"""

"""vae: a sequence VAE, which encodes a document as a small latent vector and reconstructs the document from it.

In reading order:

    options.py           VAEConfig: options and presets
    network.py           SequenceVAE: the network, in one file from top to bottom
    kl_schedule.py       the weight of the KL term by step
    latent_decoding.py   the decoder, step by step with a cache
    texts.py             texts from latents: samples, reconstructions, interpolations
    posterior_watch.py   the posterior monitor in a run
    health.py            check for posterior collapse at the end of a run
"""

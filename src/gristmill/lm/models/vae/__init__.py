"""vae: a sequence VAE. A document becomes a latent of a few numbers, and the document again.

In reading order:

    options.py           VAEConfig: its options, its presets
    network.py           SequenceVAE: the network, in one file from top to bottom
    kl_schedule.py       the weight of the KL term by step
    latent_decoding.py   the decoder, step by step with a cache
    texts.py             texts from latents: samples, reconstructions, interpolations
    posterior_watch.py   the posterior monitor in a run
    health.py            whether the posterior is alive at the end of a run
"""

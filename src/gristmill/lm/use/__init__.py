"""use: evaluate, generate with, and export a trained model.

device.py       choice of the device
export.py       export of a model to another program
exports/        formats of exported models
evaluation.py   loss on held-out data
generation.py   text that continues a prompt
interruption.py interruption of a model that computes a text in one call
latent.py       texts from latents of a VAE
"""

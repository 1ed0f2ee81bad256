"""use: what a trained model is good for.

device.py       the device it is used on
evaluation.py   its loss on held-out data
generation.py   text that follows a prompt
latent.py       texts from the latents of a VAE
"""

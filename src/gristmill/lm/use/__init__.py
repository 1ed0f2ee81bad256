"""use: what a trained model is good for.

evaluation.py   its loss on held-out data
generation.py   text that follows a prompt
latent.py       texts from the latents of a VAE
"""

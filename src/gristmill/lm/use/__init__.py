"""use: what a trained model is good for.

device.py       the device it is used on
export.py       the model in the files of another program
exports/        the formats of such files
evaluation.py   its loss on held-out data
generation.py   text that follows a prompt
latent.py       texts from the latents of a VAE
"""

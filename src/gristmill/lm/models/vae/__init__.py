"""vae: a sequence VAE: one document, one latent."""

"""What hwsim.torch and hwsim.jax share: settings of each pass, and the product of two arrays by them."""

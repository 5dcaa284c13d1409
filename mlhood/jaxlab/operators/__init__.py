"""Every operator of ResNet without JAX (`no_jax`) and with it (`with_jax`), with one signature; this loads neither."""

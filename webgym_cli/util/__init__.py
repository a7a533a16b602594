"""Files, addresses, images, plugins: helpers that know nothing of the product."""

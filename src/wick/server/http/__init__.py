"""HTTP plumbing: middleware, admission control, JSON bodies, uploads and spooled responses."""

"""Parts of the Docker backend: the engine client, container lifecycle, and files in containers without Python."""

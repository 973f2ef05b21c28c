"""What the Docker backend is made of: an engine, containers and their lives, and files in those without Python."""

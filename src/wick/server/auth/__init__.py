"""Authentication: tokens, JWT, browser sessions, gateways, and the table of which route needs which role."""

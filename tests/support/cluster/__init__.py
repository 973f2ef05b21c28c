"""A cluster on one machine: wick servers in namespaces of their own, one Postgres, and faults on request."""

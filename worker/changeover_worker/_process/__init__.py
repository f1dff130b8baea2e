"""The worker process: claims, leases, drains, supervision."""

"""What the programs of this folder share: processes and what they use, clusters, requests, objects, and tables."""

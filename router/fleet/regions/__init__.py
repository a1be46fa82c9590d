"""The distances between regions, their utilisation, and the replicas of allowed regions."""

"""Access to the API server: where it is, who we are, and how both are proved."""

"""What the API server makes of an object: defaults, patches, selectors, refusals."""

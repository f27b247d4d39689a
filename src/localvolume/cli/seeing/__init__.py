"""What `status`, `why` and `support-bundle` share: facts from the API, pure views of them, text."""

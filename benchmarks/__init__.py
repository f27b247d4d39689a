"""The measured promises: our agent against a real API server, beside upstream's figures."""

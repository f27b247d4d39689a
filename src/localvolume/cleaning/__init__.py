"""Making a volume clean and proving it: methods, processes, receipts."""

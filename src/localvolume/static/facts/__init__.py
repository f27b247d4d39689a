"""What is there: entries of the discovery directories and what lies behind them."""

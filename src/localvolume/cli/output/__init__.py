"""How commands end and print: exit statuses, errors of access, and the console of tables."""

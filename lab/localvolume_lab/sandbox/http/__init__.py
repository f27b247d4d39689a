"""Requests in, answers out: routes, bodies, views, faults to order."""

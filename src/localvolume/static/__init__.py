"""Volumes an administrator prepared: facts, then a plan, then actions.

`facts` reads what is there and never writes; `plan` decides and is pure; `act` does one action and
never decides; `role` knows what wakes it all up.
"""

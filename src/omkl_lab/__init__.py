"""What proves omkl: the paper reproduced, the frontier, faults by the thousand, sweeps, tuning, more methods.

It uses ``omkl`` as any other package would, and adds its commands and methods through entry points.
"""

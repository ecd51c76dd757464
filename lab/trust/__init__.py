"""The adversarial suite: generated attacks on the trust model, and honest flows beside them.

An attack class is one file here with one :class:`lab.trust.attacks.AttackClass`, found by
discovery; every attempt plays in a :class:`lab.trust.harness.World` of its own.
"""

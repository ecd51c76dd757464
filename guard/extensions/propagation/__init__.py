"""The propagation graph: which memory items, calls and sends follow from which, and how surely.

After Liu et al., "Memory Poisoning Propagation and Repair Mechanism in Multi-Agent Collaborative
Environments" (preprints 202602.1188).  What a call saves or sends is compared with what was saved
before; each edge has its evidence and a tier.  An operator who learns of a bad item opens an
incident, sees what it reached, contains it in one step, repairs, and can undo every step.
"""

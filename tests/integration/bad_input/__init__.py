"""Bad input on a running system: each piece is named where its sender looks, and changes nothing else.

Every test runs beside bystanders (a quota, its queue, a job that has run, a pod that runs): their versions must not
move, and no process of the cluster may have been started anew. Afterwards a job still runs to its end.
"""

"""What a kube-scheduler asks before it chooses a node (scheduler extender, API v1).

Its answers are made from memory: a request touches no cluster. The scheduler goes on without us
where we do not answer; a pod that is not a fleet's is let through.
"""

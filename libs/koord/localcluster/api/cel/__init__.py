"""CEL as Kubernetes speaks it: Google's evaluator with Kubernetes' functions, types from schemas, and limits of cost.

Nothing of it is loaded before the first rule, condition or policy is stored.
"""

"""CEL as Kubernetes speaks it: Google's evaluator with Kubernetes' functions, types of variables, and limits of cost.

The embedded API's rules, conditions and policies are judged with it, and the scheduler's selectors of devices.
Nothing of it is loaded before the first expression is there.
"""

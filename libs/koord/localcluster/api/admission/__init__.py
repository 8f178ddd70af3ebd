"""Admission: webhooks that other processes serve are asked before a write is made, and may change or refuse it.

`definitions` and `rules` know the configurations, `expressions` and `celvalues` their conditions, `hooks` which of them
concern a request, `review` the question and the answer, `transport` how it travels, `dispatch` the order of asking,
`admission` how the synchronous writes of the cluster wait for it.
"""

"""Admission: policies and webhooks, which other processes serve, may refuse a write before it is made, or change it.

`definitions` and `rules` know the configurations, `conditions` their expressions, `hooks` which of them concern a
request, `review` the question and the answer, `transport` how it travels, `dispatch` the order of asking, `admission`
how the synchronous writes of the cluster wait for it. `policydefinitions` and `policies` are the policies, which need
nobody else.
"""

"""Server-side apply: who owns which field, what an apply patch makes of an object, and conflicts between managers.

From the bottom: `structure` says how a type is merged, `elements` names places in an object, `fieldsets` are sets of
such places in the form of FieldsV1, `comparing`, `merging` and `checking` are functions of objects and types,
`managers` reads and writes `metadata.managedFields`, `updating` is the algorithm, `births` and `ownership` know whose
the fields of an object are that is not tracked, `applying` is what a request asks for. Only the last knows the server.
"""

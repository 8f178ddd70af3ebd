"""The API server with the user's kubeconfig: for what users write (submit) and for reading without the bus."""

from koord.cli.errors import UsageProblem
from koord.localcluster.httpapi import HttpClusterApi


async def connect(kubeconfig: str) -> HttpClusterApi:
    """A client by the kubeconfig file; UsageProblem names the file and what is wrong with it."""
    # Imported here: reading every kind of kubeconfig takes a library that needs two seconds to load.
    from koord.gateway.access import AccessError
    from koord.gateway.kubeconfig import load_access

    try:
        access = await load_access(kubeconfig)
    except AccessError as error:
        raise UsageProblem(f"kubeconfig {error}") from error
    headers = {"Authorization": access.authorization} if access.authorization else {}
    return HttpClusterApi(access.url, tls=access.ssl, headers=headers)

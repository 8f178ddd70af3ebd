"""License seats: pods that run licensed software are placed where a license pool has seats for them, and get these.

A LicensePool offers so many seats of a product to the nodes that its selector matches (the license server of a site).
Seats float: whichever node of the site a pod is on, it takes seats of the same pool.
"""

-- The functions by the names that clients call; a later version of one gets a name of its own.

register('claim_v1', claim)
register('renew_v1', renew, 'allow-oom')
register('advance_v1', advance, 'allow-oom')
register('release_v1', release, 'allow-oom')
register('observe_v1', observe, 'allow-oom')
register('guards_v1', guards, 'no-writes')
register('nominate_v1', nominate)
register('scan_nominated_v1', scan_nominated, 'no-writes')
register('faults_v1', faults, 'no-writes')
register('placements_v1', recent.read, 'allow-oom')

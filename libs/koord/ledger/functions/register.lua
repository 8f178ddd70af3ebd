-- The functions by the names that clients call; a later version of one gets a name of its own.

-- Only claims and renewals need room: everything else ends or settles what is there, and must run out of memory too.
local function register(name, callback, ...)
  redis.register_function{function_name = name, callback = callback, flags = {...}}
end

register('claim_v1', claim)
register('renew_v1', renew, 'allow-oom')
register('advance_v1', advance, 'allow-oom')
register('release_v1', release, 'allow-oom')
register('observe_v1', observe, 'allow-oom')
register('sweep_v1', sweep_now, 'allow-oom')
register('lead_v1', lead, 'allow-oom')
register('begin_v1', begin, 'allow-oom')
register('rebuild_v1', rebuild, 'allow-oom')
register('close_v1', close, 'allow-oom')
register('retire_v1', retire, 'allow-oom')
register('open_v1', open, 'allow-oom')
register('status_v1', status, 'no-writes')
register('items_v1', items, 'no-writes')
register('items_named_v1', items_named, 'no-writes')
register('guards_v1', guards, 'no-writes')
register('nominate_v1', nominate)
register('scan_nominated_v1', scan_nominated, 'no-writes')
register('sums_v1', sums, 'no-writes')
register('faults_v1', faults, 'no-writes')
register('owners_v1', owners, 'no-writes')
register('placements_v1', recent.read, 'allow-oom')
register('scan_flights_v1', scan_in({HELD, BINDING}), 'no-writes')
register('records_v1', records, 'no-writes')
register('scan_records_v1', scan_records, 'no-writes')
register('scan_binding_v1', scan_in({BINDING}), 'no-writes')

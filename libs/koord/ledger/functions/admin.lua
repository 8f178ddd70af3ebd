-- Who leads, opening and dropping the ledger, and reading it.

-- Numbers start from the clock (ms), so that a Redis that lost everything never gives one out twice.
local function next_epoch(L, last, at_least)
  return math.max(last + 1, L.now, at_least or 0)
end

-- {role, incarnation} -> epoch of the role: the same again while the caller is the highest, else one more.
local function lead(keys, args)
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  local role, incarnation = input[1], input[2]
  local stored = redis.call('HGET', L.key .. ':roles', role)
  local holder = stored and cmsgpack.unpack(stored)
  if holder and holder[2] == incarnation then return cmsgpack.pack(holder[1]) end
  local epoch = holder and holder[1] + 1 or next_epoch(L, 0)
  redis.call('HSET', L.key .. ':roles', role, cmsgpack.pack({epoch, incarnation}))
  return cmsgpack.pack(epoch)
end

-- {role epoch, incarnation, at least}: drop everything but the roles and columns, close, raise the epoch.
local function begin(keys, args)
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  if not leads(L, 'reconciler', input[1], input[2]) then return cmsgpack.pack({'stale', L.epoch}) end
  local epoch = next_epoch(L, L.epoch, input[3])
  for _, suffix in ipairs({':items', ':seen', ':records', ':claims', ':leases', ':renewals', ':owners', ':gone', ':slots',
    ':expired', ':guards'}) do
    redis.call('UNLINK', L.key .. suffix)
  end
  redis.call('HSET', L.key .. ':meta', 'epoch', epoch, 'open', '0', 'run_id', own_run_id(), 'token', L.token, 'held', 0,
    'binding', 0, 'observed', 0)
  flush(L)
  return cmsgpack.pack({'ok', epoch})
end

-- {role epoch, incarnation}: open what the reconciler has filled.
local function open(keys, args)
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  if not leads(L, 'reconciler', input[1], input[2]) then return cmsgpack.pack({'stale', L.epoch}) end
  if L.run_id ~= '' and not L.begun then return cmsgpack.pack({'closed', L.epoch}) end
  local epoch = L.epoch
  if not L.open then
    if epoch == 0 then epoch = next_epoch(L, 0) end
    redis.call('HSET', L.key .. ':meta', 'epoch', epoch, 'open', '1', 'run_id', own_run_id(), 'token', L.token)
  end
  flush(L)
  return cmsgpack.pack({'ok', epoch})
end

-- {role epoch, incarnation}: row 4 for whoever calls nothing else, and what expired since the last report.
local function sweep_now(keys, args)
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  if not L.open then return cmsgpack.pack({'closed', L.epoch}) end
  if not leads(L, 'reconciler', input[1], input[2]) then return cmsgpack.pack({'stale', L.epoch}) end
  sweep(L)
  local changed, freed = changes(L)
  local expired = take_expired(L)
  flush(L)
  return cmsgpack.pack({'ok', L.epoch, changed, freed, {}, expired, {}, {}, {}})
end

local function status(keys)
  local L = enter(keys[1])
  local roles, raw = {}, redis.call('HGETALL', L.key .. ':roles')
  for i = 1, #raw, 2 do roles[#roles + 1] = {raw[i], cmsgpack.unpack(raw[i + 1])} end
  return cmsgpack.pack({BUILD, L.open, L.epoch, own_run_id(), L.token, L.counts[HELD], L.counts[BINDING],
    L.counts[OBSERVED], redis.call('HLEN', L.key .. ':items'), roles})
end

local function open_item(names, name, packed)
  local n = #packed / 8
  local v = {struct.unpack(doubles(n), packed)}
  local amounts = {}
  for c = 1, (n - HEAD) / WIDTH do
    local b = HEAD + (c - 1) * WIDTH
    if v[b + USED] ~= 0 or v[b + HOLD] ~= 0 or v[b + NESTED] ~= 0 or v[b + LIMIT] ~= no_limit(name) then
      local limit = v[b + LIMIT]
      if limit == math.huge then limit = false end
      amounts[#amounts + 1] = {names[c], limit, v[b + USED], v[b + HOLD], v[b + NESTED]}
    end
  end
  return {name, v[1] == OPEN, v[2], v[3], amounts}
end

-- Resource names by column.
local function columns_by_number(L)
  local names = {}
  for resource, c in pairs(L.columns) do names[c] = resource end
  return names
end

-- {item names} -> those of them that there are.
local function items_named(keys, args)
  local names = columns_by_number(enter(keys[1]))
  local wanted = cmsgpack.unpack(args[1])
  local rows = {}
  each_chunk(wanted, CHUNK, function(first, last)
    local values = redis.call('HMGET', keys[1] .. ':items', unpack(wanted, first, last))
    for i = 1, #values do
      if values[i] then rows[#rows + 1] = open_item(names, wanted[first + i - 1], values[i]) end
    end
  end)
  return cmsgpack.pack(rows)
end

-- {prefix, cursor} -> {next cursor, items}.
local function items(keys, args)
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  local names = columns_by_number(L)
  local reply = redis.call('HSCAN', L.key .. ':items', input[2], 'COUNT', 1000)
  local rows, raw = {}, reply[2]
  for i = 1, #raw, 2 do
    if string.sub(raw[i], 1, #input[1]) == input[1] then rows[#rows + 1] = open_item(names, raw[i], raw[i + 1]) end
  end
  return cmsgpack.pack({reply[1], rows})
end

local function open_record(uid, packed)
  local rec = cmsgpack.unpack(packed)
  rec[REC.TAKES] = takes_of(rec[REC.TAKES])
  return {uid, rec}
end

-- {uids} -> records of those that have one.
local function records(keys, args)
  local uids = cmsgpack.unpack(args[1])
  local rows = {}
  each_chunk(uids, CHUNK, function(first, last)
    local values = redis.call('HMGET', keys[1] .. ':records', unpack(uids, first, last))
    for i = 1, #values do
      if values[i] then rows[#rows + 1] = open_record(uids[first + i - 1], values[i]) end
    end
  end)
  return cmsgpack.pack(rows)
end

-- {cursor} -> {next cursor, records}.
local function scan_records(keys, args)
  local input = cmsgpack.unpack(args[1])
  local reply = redis.call('HSCAN', keys[1] .. ':records', input[1], 'COUNT', 1000)
  local rows, raw = {}, reply[2]
  for i = 1, #raw, 2 do rows[#rows + 1] = open_record(raw[i], raw[i + 1]) end
  return cmsgpack.pack({reply[1], rows})
end

-- {cursor} -> {next cursor, records that are BINDING}. Claims exist only while a member is HELD or BINDING, so this costs
-- what is in flight, not what runs.
local function scan_binding(keys, args)
  local input = cmsgpack.unpack(args[1])
  local reply = redis.call('HSCAN', keys[1] .. ':claims', input[1], 'COUNT', 1000)
  local uids, rows, raw = {}, {}, reply[2]
  for i = 2, #raw, 2 do
    local entry = cmsgpack.unpack(raw[i])
    if entry[CLM.BINDING] > 0 then
      for _, uid in ipairs(entry[CLM.UIDS]) do uids[#uids + 1] = uid end
    end
  end
  each_chunk(uids, CHUNK, function(first, last)
    local values = redis.call('HMGET', keys[1] .. ':records', unpack(uids, first, last))
    for i = 1, #values do
      if values[i] and cmsgpack.unpack(values[i])[REC.STATE] == BINDING then
        rows[#rows + 1] = open_record(uids[first + i - 1], values[i])
      end
    end
  end)
  return cmsgpack.pack({reply[1], rows})
end

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
register('open_v1', open, 'allow-oom')
register('status_v1', status, 'no-writes')
register('items_v1', items, 'no-writes')
register('items_named_v1', items_named, 'no-writes')
register('guards_v1', guards, 'no-writes')
register('records_v1', records, 'no-writes')
register('scan_records_v1', scan_records, 'no-writes')
register('scan_binding_v1', scan_binding, 'no-writes')

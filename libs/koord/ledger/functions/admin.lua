-- Who leads; opening the ledger, closing it, dropping and rebuilding what it holds.
-- In a block of its own, as reading.lua.

do
-- How far ahead of the clock a time may be, and where it is set if it is further, ms.
local AHEAD = {[':leases'] = {600000, 30000}, [':renewals'] = {600000, 30000}, [':offers'] = {600000, 60000},
  [':gone'] = {3600000, 600000}}

-- Numbers start from the clock (ms), so that a Redis that lost everything never gives one out twice.
local function next_epoch(L, last, at_least)
  return math.max(last + 1, L.now, at_least or 0)
end

local TYPES = {
  hash = {':meta', ':roles', ':columns', ':tickets', ':items', ':seen', ':records', ':claims', ':owners', ':slots',
    ':nominated', ':rooms', ':nominations', ':followers'},
  zset = {':leases', ':renewals', ':guards', ':ticketed', ':offers', ':gone'},
  list = {':expired', ':placements', ':repellers'},
  set = {':strangers'},
}

-- What is to be rebuilt must be readable for that to begin: what somebody else wrote in its place goes, be it by a slip of
-- the hand. A role is then known again from the rebuild, as after a loss of Redis; columns go with the items. A ledger that
-- lost something here is closed: records could be made twice, and columns be given out anew under items that still are.
local function make_readable(key)
  local whole = true
  for wanted, suffixes in pairs(TYPES) do
    for _, suffix in ipairs(suffixes) do
      local found = redis.call('TYPE', key .. suffix).ok
      if found ~= wanted and found ~= 'none' then
        redis.call('UNLINK', key .. suffix)
        whole = false
      end
    end
  end
  local roles = redis.call('HGETALL', key .. ':roles')
  for i = 1, #roles, 2 do
    local good, holder = pcall(cmsgpack.unpack, roles[i + 1])
    if not good or type(holder) ~= 'table' or type(holder[1]) ~= 'number' or type(holder[2]) ~= 'string' then
      redis.call('HDEL', key .. ':roles', roles[i])
      whole = false
    end
  end
  local columns, seen = redis.call('HGETALL', key .. ':columns'), {}
  for i = 2, #columns, 2 do
    local c = tonumber(columns[i])
    if not c or c % 1 ~= 0 or c < 1 or c > #columns / 2 or seen[c] then
      redis.call('UNLINK', key .. ':columns')
      whole = false
      break
    end
    seen[c] = true
  end
  if not whole and redis.call('HEXISTS', key .. ':meta', 'open') == 1 then redis.call('HSET', key .. ':meta', 'open', '0') end
end

-- {role, incarnation} -> epoch of the role: the same again while the caller is the highest, else a higher one. From the
-- clock even where a holder is known: after a loss that may be an old leader who woke up, and others remember newer ones.
local function lead(keys, args)
  make_readable(keys[1])
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  local role, incarnation = input[1], input[2]
  local stored = redis.call('HGET', L.key .. ':roles', role)
  local holder = stored and cmsgpack.unpack(stored)
  if holder and holder[2] == incarnation then return cmsgpack.pack(holder[1]) end
  local epoch = next_epoch(L, holder and holder[1] or 0)
  redis.call('HSET', L.key .. ':roles', role, cmsgpack.pack({epoch, incarnation}))
  return cmsgpack.pack(epoch)
end

-- {epoch, owners}: row 3 for incarnations that are dead: their HELD claims end, at most MAX_MEMBERS members a call. Safe
-- even for one that lives after all, as its own release would be: a decision that it published is refused.
-- Answer {status, epoch, {claim, uids, reason}, items, whether there is more}.
local function retire(keys, args)
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  local refused = refusal(L, input[1])
  if refused then return cmsgpack.pack({refused, L.epoch, {}, {}, false}) end
  local dead, names, members, more = {}, {}, 0, false
  for _, owner in ipairs(input[2]) do dead[owner] = true end
  local ids = redis.call('ZRANGE', L.key .. ':leases', 0, -1)
  fetch_claims(L, ids)
  for _, id in ipairs(ids) do
    local entry = claim_of(L, id)
    if entry and dead[entry[CLM.OWNER]] and entry[CLM.HELD] > 0 then
      if members > 0 and members + #entry[CLM.UIDS] > MAX_MEMBERS then
        more = true
        break
      end
      local uids, items = end_held(L, id, entry)
      for name in pairs(items) do names[name] = true end
      members = members + #uids
      L.ended[#L.ended + 1] = {id, uids, 'retired'}
    end
  end
  local items = {}
  for name in pairs(names) do items[#items + 1] = name end
  table.sort(items)
  flush(L)
  return cmsgpack.pack({'ok', L.epoch, L.ended, items, more})
end

-- Incarnations that have HELD claims.
local function owners(keys)
  return cmsgpack.pack(redis.call('HKEYS', keys[1] .. ':owners'))
end

-- Everything but who leads, what was promised to groups, and the numbers that must never come again.
local function drop_all(L)
  local stays = {[':meta'] = true, [':roles'] = true, [':tickets'] = true, [':ticketed'] = true}
  for _, suffixes in pairs(TYPES) do
    for _, suffix in ipairs(suffixes) do
      if not stays[suffix] then redis.call('UNLINK', L.key .. suffix) end
    end
  end
end

local function start_empty(L, epoch, token)
  drop_all(L)
  redis.call('HSET', L.key .. ':meta', 'epoch', epoch, 'open', '0', 'run_id', own_run_id(), 'token', token, 'held', 0,
    'binding', 0, 'observed', 0, 'nominated', 0)
end

-- {role epoch, incarnation, at least}: drop everything, see drop_all, close, raise the epoch.
local function begin(keys, args)
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  if not leads(L, 'reconciler', input[1], input[2]) then return cmsgpack.pack({'stale', L.epoch}) end
  local epoch = next_epoch(L, L.epoch, input[3])
  start_empty(L, epoch, L.token)
  flush(L)
  return cmsgpack.pack({'ok', epoch})
end

-- {role epoch, incarnation, epoch, {role, epoch, incarnation}}: the start of a rebuild after the gateway's barrier, under
-- exactly the epoch that the barrier raised. The roles named are known again before anybody else can call.
local function rebuild(keys, args)
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  local epoch = input[3]
  if not leads(L, 'reconciler', input[1], input[2]) then return cmsgpack.pack({'stale', L.epoch}) end
  if L.open then return cmsgpack.pack({'open', L.epoch}) end
  if epoch < L.epoch then return cmsgpack.pack({'epoch', L.epoch}) end
  for _, named in ipairs(input[4]) do leads(L, named[1], named[2], named[3]) end
  start_empty(L, epoch, math.max(L.token, epoch))
  flush(L)
  return cmsgpack.pack({'ok', epoch})
end

-- {role epoch, incarnation}: nothing is claimed or advanced from here on; the data stay until a rebuild.
local function close(keys, args)
  make_readable(keys[1])
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  if not leads(L, 'reconciler', input[1], input[2]) then return cmsgpack.pack({'stale', L.epoch}) end
  if L.open then redis.call('HSET', L.key .. ':meta', 'open', '0') end
  flush(L)
  return cmsgpack.pack({'ok', L.epoch})
end

-- {role epoch, incarnation, epoch or nothing}: open what the reconciler has filled, if it still is of that epoch.
local function open(keys, args)
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  if not leads(L, 'reconciler', input[1], input[2]) then return cmsgpack.pack({'stale', L.epoch}) end
  if L.run_id ~= '' and not L.begun then return cmsgpack.pack({'closed', L.epoch}) end
  if (input[3] or 0) ~= 0 and (input[3] ~= L.epoch or not L.begun) then return cmsgpack.pack({'epoch', L.epoch}) end
  local epoch = L.epoch
  if not L.open then
    if epoch == 0 then epoch = next_epoch(L, 0) end
    redis.call('HSET', L.key .. ':meta', 'epoch', epoch, 'open', '1', 'run_id', own_run_id(), 'token', L.token)
  end
  flush(L)
  return cmsgpack.pack({'ok', epoch})
end

-- A clock that was set back leaves times that are further ahead than any call sets them: a dead owner's room would be held
-- until it has caught up. What is too far ahead lasts as long as if it were set now, unless its owner renews it by then.
local function set_right_by_clock(L)
  for suffix, times in pairs(AHEAD) do
    local ahead = redis.call('ZRANGEBYSCORE', L.key .. suffix, '(' .. L.now + times[1], '+inf', 'LIMIT', 0, CHUNK / 2)
    local set = {}
    for _, name in ipairs(ahead) do
      set[#set + 1] = L.now + times[2]
      set[#set + 1] = name
    end
    write(L, 'ZADD', suffix, set)
  end
end

-- {role epoch, incarnation}: row 4 for whoever calls nothing else, and what expired since the last report.
local function sweep_now(keys, args)
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  if not L.open then return cmsgpack.pack({'closed', L.epoch}) end
  if not leads(L, 'reconciler', input[1], input[2]) then return cmsgpack.pack({'stale', L.epoch}) end
  set_right_by_clock(L)
  sweep(L)
  local changed, freed = changes(L)
  local expired = take_expired(L)
  flush(L)
  return cmsgpack.pack({'ok', L.epoch, changed, freed, {}, expired, {}, {}, {}})
end

register('sweep_v1', sweep_now, 'allow-oom')
register('lead_v1', lead, 'allow-oom')
register('begin_v1', begin, 'allow-oom')
register('rebuild_v1', rebuild, 'allow-oom')
register('close_v1', close, 'allow-oom')
register('retire_v1', retire, 'allow-oom')
register('open_v1', open, 'allow-oom')
register('owners_v1', owners, 'no-writes')
end

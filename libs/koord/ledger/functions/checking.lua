-- What no sum shows: whether claims, records, slots and numbers agree, and whether what is stored can be read at all.
-- A fault is {kind, name, text}. Every check reads one moment, so what it finds is damage and no lateness.

local function unreadable(kind, name) return {kind, name, 'its bytes cannot be read'} end

local function decoded(kind, name, packed, rows)
  local good, value = pcall(cmsgpack.unpack, packed)
  if good and type(value) == 'table' then return value end
  rows[#rows + 1] = unreadable(kind, name)
end

-- A number that is kept beside what it counts.
local function check_count(L, rows, name, kept, suffix)
  local there = redis.call('HLEN', L.key .. suffix)
  if there ~= kept then rows[#rows + 1] = {'count', name, 'says ' .. kept .. ', there are ' .. there} end
end

local function check_counts(L)
  local rows = {}
  check_count(L, rows, 'records', L.counts[HELD] + L.counts[BINDING] + L.counts[OBSERVED], ':records')
  check_count(L, rows, 'nominated', L.nominations, ':nominated')
  return rows
end

local function check_claim(L, rows, id, entry)
  local held, binding = 0, 0
  for _, uid in ipairs(entry[CLM.UIDS]) do
    local rec = record(L, uid)
    if rec and rec[REC.CLAIM] == id then
      if rec[REC.STATE] == HELD then held = held + 1 end
      if rec[REC.STATE] == BINDING then binding = binding + 1 end
      if rec[REC.TOKEN] ~= entry[CLM.TOKEN] then rows[#rows + 1] = {'claim', id, uid .. ' has another token'} end
    end
  end
  if held ~= entry[CLM.HELD] or binding ~= entry[CLM.BINDING] then
    rows[#rows + 1] = {'claim', id, 'says ' .. entry[CLM.HELD] .. ' held and ' .. entry[CLM.BINDING]
      .. ' binding, its records ' .. held .. ' and ' .. binding}
  end
  if entry[CLM.STRICT] and held > 0 and binding > 0 then rows[#rows + 1] = {'claim', id, 'strict, advanced in part'} end
  if held > 0 and not redis.call('ZSCORE', L.key .. ':leases', id) then
    rows[#rows + 1] = {'claim', id, 'held without a lease'}
  end
end

local function check_claims(L, cursor)
  local rows = {}
  local reply = redis.call('HSCAN', L.key .. ':claims', cursor, 'COUNT', 1000)
  for i = 1, #reply[2], 2 do
    local id = reply[2][i]
    local entry = decoded('claim', id, reply[2][i + 1], rows)
    if entry then
      local good = pcall(check_claim, L, rows, id, entry)
      if not good then rows[#rows + 1] = unreadable('claim', id) end
    end
  end
  return rows, reply[1]
end

-- A slot whose holder is no more would never be free again.
local function check_slots(L, cursor)
  local rows = {}
  local reply = redis.call('HSCAN', L.key .. ':slots', cursor, 'COUNT', 1000)
  for i = 1, #reply[2], 2 do
    local slot, holder = reply[2][i], reply[2][i + 1]
    local claim, offer = string.match(holder, '^claim:(.*)$'), string.match(holder, '^nomination:(.*)$')
    local suffix = claim and ':claims' or offer and ':nominations' or ':records'
    if redis.call('HEXISTS', L.key .. suffix, claim or offer or holder) == 0 then
      rows[#rows + 1] = {'slot', slot, 'held by ' .. holder .. ', which is no more'}
    end
  end
  return rows, reply[1]
end

-- A record that is HELD or BINDING ends with its claim, so without one it would never end.
local function check_records(L, cursor)
  local rows = {}
  local reply = redis.call('HSCAN', L.key .. ':records', cursor, 'COUNT', 1000)
  for i = 1, #reply[2], 2 do
    local uid = reply[2][i]
    local rec = decoded('record', uid, reply[2][i + 1], rows)
    if rec then
      if not pcall(takes_of, rec[REC.TAKES]) or not COUNTER[rec[REC.STATE]] then
        rows[#rows + 1] = unreadable('record', uid)
      elseif rec[REC.STATE] ~= OBSERVED and redis.call('HEXISTS', L.key .. ':claims', rec[REC.CLAIM]) == 0 then
        rows[#rows + 1] = {'record', uid, 'its claim ' .. rec[REC.CLAIM] .. ' is no more'}
      end
    end
  end
  return rows, reply[1]
end

-- Whether a vector is whole, and its amounts are numbers that can be added. Only a limit may be endless.
local function is_vector(packed)
  local n = #packed / 8
  if n % 1 ~= 0 or n < HEAD or (n - HEAD) % WIDTH ~= 0 then return false end
  local v = {struct.unpack(doubles(n), packed)}
  for at = 1, n do
    if v[at] ~= v[at] then return false end
    local is_limit = at > HEAD and (at - HEAD - 1) % WIDTH + 1 == LIMIT
    if v[at] == -math.huge or (v[at] == math.huge and not is_limit) then return false end
  end
  return true
end

local function check_items(L, cursor)
  local rows = {}
  local reply = redis.call('HSCAN', L.key .. ':items', cursor, 'COUNT', 1000)
  for i = 1, #reply[2], 2 do
    if not is_vector(reply[2][i + 1]) then rows[#rows + 1] = unreadable('item', reply[2][i]) end
  end
  return rows, reply[1]
end

local CHECKS = {claims = check_claims, slots = check_slots, records = check_records, items = check_items}

-- {what, cursor} -> {next cursor, faults}.
local function faults(keys, args)
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  if input[1] == 'counts' then return cmsgpack.pack({'0', check_counts(L)}) end
  local rows, cursor = CHECKS[input[1]](L, input[2])
  return cmsgpack.pack({cursor, rows})
end

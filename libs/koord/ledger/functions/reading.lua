-- Reading the ledger: nothing here changes anything.
-- In a block of its own: a library may have two hundred names of its own, and nobody else needs these.

do

local function status(keys)
  local L = enter(keys[1])
  local roles, raw = {}, redis.call('HGETALL', L.key .. ':roles')
  for i = 1, #raw, 2 do roles[#roles + 1] = {raw[i], cmsgpack.unpack(raw[i + 1])} end
  local folded = redis.call('HMGET', L.key .. ':meta', 'stream', 'folded')
  return cmsgpack.pack({BUILD, L.open, L.epoch, own_run_id(), L.token, L.counts[HELD], L.counts[BINDING],
    L.counts[OBSERVED], redis.call('HLEN', L.key .. ':items'), roles, folded[1] or '', tonumber(folded[2] or 0)})
end

local function open_item(names, name, packed)
  if not is_vector(packed) then error('item ' .. name .. ': its bytes cannot be read') end
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

-- {item names} -> {epoch, rows}: for each item what it says and what the records say, at one moment. It reads every
-- record and takes some microseconds for each: for items under suspicion only.
-- A row is {name, item as of items_named or false, amounts {resource, used, held}, references}.
local function sums(keys, args)
  local L = enter(keys[1])
  local names, wanted = columns_by_number(L), {}
  for _, name in ipairs(cmsgpack.unpack(args[1])) do wanted[name] = {0, {}, {}} end
  local cursor = '0'
  repeat
    local reply = redis.call('HSCAN', L.key .. ':records', cursor, 'COUNT', 1000)
    cursor = reply[1]
    for i = 2, #reply[2], 2 do
      local rec = cmsgpack.unpack(reply[2][i])
      for _, take in ipairs(takes_of(rec[REC.TAKES])) do
        local sum = wanted[take[1]]
        if sum then
          local into = sum[rec[REC.STATE] == OBSERVED and 2 or 3]
          sum[1] = sum[1] + 1
          for resource, amount in pairs(take[2]) do
            amount = math.max(math.min(amount, MAX_AMOUNT), -MAX_AMOUNT)
            if not L.columns[resource] then resource = OTHERS end
            into[resource] = (into[resource] or 0) + amount
          end
        end
      end
    end
  until cursor == '0'
  for name, units in pairs(units_held(L)) do
    local sum = wanted[name]
    if sum then sum[1], sum[3].disruptions = sum[1] + units, (sum[3].disruptions or 0) + units end
  end
  local rows = {}
  for name, sum in pairs(wanted) do
    local amounts, seen = {}, {}
    for k = 2, 3 do for resource in pairs(sum[k]) do seen[resource] = true end end
    for resource in pairs(seen) do
      amounts[#amounts + 1] = {resource, sum[2][resource] or 0, sum[3][resource] or 0}
    end
    local packed = redis.call('HGET', L.key .. ':items', name)
    rows[#rows + 1] = {name, packed and open_item(names, name, packed) or false, amounts, sum[1]}
  end
  return cmsgpack.pack({L.epoch, rows})
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

-- {cursor} -> {next cursor, records that are in one of `states`}. Claims exist only while a member is HELD or BINDING, so
-- this costs what is in flight, not what runs.
local function scan_in(states)
  local wanted = {}
  for i = 1, #states do wanted[states[i]] = true end -- at load there are no iterators
  return function(keys, args)
    local input = cmsgpack.unpack(args[1])
    local reply = redis.call('HSCAN', keys[1] .. ':claims', input[1], 'COUNT', 1000)
    local uids, rows, raw = {}, {}, reply[2]
    for i = 2, #raw, 2 do
      local entry = cmsgpack.unpack(raw[i])
      if entry[CLM.BINDING] > 0 or wanted[HELD] then
        for _, uid in ipairs(entry[CLM.UIDS]) do uids[#uids + 1] = uid end
      end
    end
    each_chunk(uids, CHUNK, function(first, last)
      local values = redis.call('HMGET', keys[1] .. ':records', unpack(uids, first, last))
      for i = 1, #values do
        if values[i] and wanted[cmsgpack.unpack(values[i])[REC.STATE]] then
          rows[#rows + 1] = open_record(uids[first + i - 1], values[i])
        end
      end
    end)
    return cmsgpack.pack({reply[1], rows})
  end
end

register('status_v1', status, 'no-writes')
register('items_v1', items, 'no-writes')
register('items_named_v1', items_named, 'no-writes')
register('sums_v1', sums, 'no-writes')
register('records_v1', records, 'no-writes')
register('scan_records_v1', scan_records, 'no-writes')
register('scan_flights_v1', scan_in({HELD, BINDING}), 'no-writes')
register('scan_binding_v1', scan_in({BINDING}), 'no-writes')
end

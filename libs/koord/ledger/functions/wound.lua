-- Row 6: a claim that only HELD claims of lower rank stand in the way of takes their room.
-- Rank is priority, then ticket: a group's is given at its first claim, refused or not, and forgotten when it made no
-- claim for an hour; a claim of no group has its token. The claims that go are the fewest that suffice, and of those the
-- lowest, compared from the lowest rank on.

local TICKET_MS = 3600000
local TRIES = 2000          -- combinations looked at before the first that suffices, fewest or not, is taken
local TABLE = 20000         -- claims times amounts up to which combinations are looked at

local function fetch_tickets(L, groups)
  each_chunk(groups, CHUNK, function(first, last)
    local numbers = redis.call('HMGET', L.key .. ':tickets', unpack(groups, first, last))
    local used = redis.call('ZMSCORE', L.key .. ':ticketed', unpack(groups, first, last))
    for i = 1, #numbers do
      local fresh = used[i] and tonumber(used[i]) >= L.now - TICKET_MS
      L.tickets[groups[first + i - 1]] = fresh and tonumber(numbers[i]) or false
    end
  end)
end

local function ticket_of(L, group)
  if L.tickets[group] == nil then fetch_tickets(L, {group}) end
  if not L.tickets[group] then
    L.token = L.token + 1
    L.tickets[group] = L.token
  end
  L.dirty_tickets[group] = L.tickets[group]
  return L.tickets[group]
end

writers[#writers + 1] = function(L)
  for group, ticket in pairs(L.dirty_tickets) do
    redis.call('HSET', L.key .. ':tickets', group, ticket)
    redis.call('ZADD', L.key .. ':ticketed', L.now, group)
    L.touched = true
  end
end

local function prune_tickets(L)
  local unused = redis.call('ZRANGEBYSCORE', L.key .. ':ticketed', '-inf', '(' .. L.now - TICKET_MS, 'LIMIT', 0, SWEEP)
  if #unused == 0 then return end
  redis.call('ZREM', L.key .. ':ticketed', unpack(unused))
  redis.call('HDEL', L.key .. ':tickets', unpack(unused))
end

local function rank(entry)
  return entry[CLM.PRIORITY], entry[CLM.TICKET] ~= 0 and entry[CLM.TICKET] or entry[CLM.TOKEN]
end

-- HELD claims of lower rank, the lowest first: {id, entry}.
local function lower_held(L, priority, ticket)
  local ids, found = redis.call('ZRANGE', L.key .. ':leases', 0, -1), {}
  for id, lease in pairs(L.leases) do
    if lease then ids[#ids + 1] = id end
  end
  fetch_claims(L, ids)
  local looked = {}
  for _, id in ipairs(ids) do
    local entry = claim_of(L, id)
    if entry and not looked[id] and entry[CLM.HELD] > 0 and entry[CLM.BINDING] == 0 then
      local its_priority, its_ticket = rank(entry)
      if its_priority < priority or (its_priority == priority and its_ticket > ticket) then
        found[#found + 1] = {id, entry, its_priority, its_ticket}
      end
    end
    looked[id] = true
  end
  table.sort(found, function(a, b)
    if a[3] ~= b[3] then return a[3] < b[3] end
    if a[4] ~= b[4] then return a[4] > b[4] end
    return a[2][CLM.TOKEN] > b[2][CLM.TOKEN]
  end)
  return found
end

-- What a claim would give back, by number of the need; nil if it helps nowhere.
local function gain_of(L, id, entry, numbers, missing, blocking)
  local gain, helps = {}, blocking['claim:' .. id] or false
  fetch_records(L, entry[CLM.UIDS])
  for _, uid in ipairs(entry[CLM.UIDS]) do
    local rec = record(L, uid)
    if rec and rec[REC.CLAIM] == id and rec[REC.STATE] == HELD then
      helps = helps or blocking[uid]
      for _, take in ipairs(takes_of(rec[REC.TAKES])) do
        local of = numbers[take[1]]
        for resource, amount in pairs(of and take[2] or {}) do
          local n = of[resource]
          if n then
            gain[n] = (gain[n] or 0) + amount
            if amount > 0 and missing[n] > 0 then helps = true end
          end
        end
      end
    end
  end
  return helps and gain or nil
end

local function copy(list)
  local found = {}
  for i = 1, #list do found[i] = list[i] end
  return found
end

local function give(left, gain, sign)
  for n, amount in pairs(gain) do left[n] = left[n] - sign * amount end
end

local function satisfied(left)
  for n = 1, #left do
    if left[n] > 0 then return false end
  end
  return true
end

-- The first that suffice, the lowest rank first, without those of them that are not needed, the highest spared first.
local function first_cover(missing, gains, forced)
  local left, chosen = copy(missing), {}
  for i = 1, #gains do
    local useful = forced[i]
    for n, amount in pairs(gains[i]) do useful = useful or (amount > 0 and left[n] > 0) end
    if useful then
      chosen[#chosen + 1] = i
      give(left, gains[i], 1)
    end
  end
  if not satisfied(left) then return nil end
  for at = #chosen, 1, -1 do
    local i, needed = chosen[at], forced[chosen[at]]
    for n, amount in pairs(gains[i]) do needed = needed or left[n] + amount > 0 end
    if not needed then
      table.remove(chosen, at)
      give(left, gains[i], -1)
    end
  end
  return chosen
end

-- For each place in the list, what all from there on would give together at most.
local function totals_from(gains, count)
  local most = {[#gains + 1] = {}}
  for n = 1, count do most[#gains + 1][n] = 0 end
  for i = #gains, 1, -1 do
    most[i] = copy(most[i + 1])
    for n, amount in pairs(gains[i]) do most[i][n] = most[i][n] + math.max(amount, 0) end
  end
  return most
end

-- The fewest that suffice, all of `forced` among them; in the order of combinations, so that the lowest ranks come first.
local function smallest_cover(missing, gains, forced, must)
  local cover, signed = first_cover(missing, gains, forced), false
  for i = 1, #gains do
    for _, amount in pairs(gains[i]) do signed = signed or amount < 0 end
  end
  -- Amounts are hardly ever negative; only then may fewer suffice where all together do not.
  if not cover and not signed or #gains * #missing > TABLE then return cover end
  local most, left, chosen, tries = totals_from(gains, #missing), copy(missing), {}, 0
  local function extend(from, size, needed)
    tries = tries + 1
    if tries > TRIES then return false end
    if size == 0 then return needed == 0 and satisfied(left) end
    for n = 1, #left do
      if left[n] > most[from][n] then return false end
    end
    for i = from, #gains - size + 1 do
      chosen[#chosen + 1] = i
      give(left, gains[i], 1)
      if extend(i + 1, size - 1, needed - (forced[i] and 1 or 0)) then return true end
      give(left, gains[i], -1)
      chosen[#chosen] = nil
      if forced[i] then return false end
    end
    return false
  end
  for size = math.max(must, 1), cover and #cover or #gains do
    if extend(1, size, must) then return chosen end
  end
  return cover
end

-- The claims to end so that a claim of these needs and slots (those taken by others) becomes admissible, or nil.
local function to_wound(L, entry, priority, ticket, needs, taken, reserved)
  if next(needs.closed) then return nil end
  if entry then
    priority, ticket = rank(entry)
  elseif ticket == 0 then
    ticket = L.token + 1
  end
  local missing, numbers = {}, {}
  for _, name in ipairs(needs.order) do
    numbers[name] = {}
    for resource in pairs(needs.checks[name]) do
      local sum = needs.sums[name][resource]
      if sum > MAX_AMOUNT then return nil end
      if sum > 0 then
        local kept = reserved and reserved[name] and reserved[name].sums[resource] or 0
        missing[#missing + 1] = sum + kept - free_of(name, L.items[name], column(L, resource))
        numbers[name][resource] = #missing
      end
    end
  end
  local blocking, blocked = {}, 0
  for i = 1, #taken do
    if taken[i][3] ~= 'slot' then return nil end
    if not blocking[taken[i][7]] then blocking[taken[i][7]], blocked = true, blocked + 1 end
  end
  local helpers, gains, forced, must = {}, {}, {}, 0
  for _, candidate in ipairs(lower_held(L, priority, ticket)) do
    local id, entry = candidate[1], candidate[2]
    local gain = gain_of(L, id, entry, numbers, missing, blocking)
    if gain then
      helpers[#helpers + 1], gains[#gains + 1] = candidate, gain
      local holds = 0
      if blocking['claim:' .. id] then holds = 1 end
      for _, uid in ipairs(entry[CLM.UIDS]) do
        local rec = record(L, uid)
        if blocking[uid] and rec and rec[REC.CLAIM] == id and rec[REC.STATE] == HELD then holds = holds + 1 end
      end
      if holds > 0 then forced[#gains], must, blocked = true, must + 1, blocked - holds end
    end
  end
  if blocked > 0 then return nil end
  local cover = smallest_cover(missing, gains, forced, must)
  if not cover then return nil end
  local found = {}
  for _, i in ipairs(cover) do found[#found + 1] = helpers[i] end
  return found
end

-- End them, whole; rows for the answer. The reconciler tells it too, should the caller not live to do it.
local function wound(L, victims)
  local rows = {}
  for _, victim in ipairs(victims) do
    local id, entry = victim[1], victim[2]
    local owner = entry[CLM.OWNER]
    local uids, items = end_held(L, id, entry)
    local names = {}
    for name in pairs(items) do names[#names + 1] = name end
    table.sort(names)
    rows[#rows + 1] = {id, owner, uids, names}
    L.expired[#L.expired + 1] = {id, uids, 'wounded', names}
  end
  return rows
end

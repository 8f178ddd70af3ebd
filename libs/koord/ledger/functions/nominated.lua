-- Nominations: room that claims of lower priority must leave to a pod that waits for it, and what is locked to make it.
--
-- A member is OFFERED for a lease, then NOTED when the reconciler has seen status.nominatedNodeName, which has none. An
-- offer is what one call of `nominate` gave: its members, victims and units of disruption budgets. Victims and units end
-- with its last member, each when the victim is seen terminating, and all when the offer's time is over. Where nobody is
-- nominated, all this costs a comparison: meta.nominated counts the members.

local MEM = {OFFER = 1, NAMESPACE = 2, NAME = 3, ITEM = 4, AMOUNTS = 5, NOTED = 6, PRIORITY = 7, JOB = 8, FOREIGN = 9,
  RV = 10, UNTIL = 11}
local OFR = {UNTIL = 1, UIDS = 2, VICTIMS = 3, UNITS = 4} -- UNITS: {item, victim}, one each

local function unpacked_into(target, missing)
  return function(name, value) target[name] = value and cmsgpack.unpack(value) or missing and {} or false end
end

local function fetch_nominated(L, uids) fetch(L, ':nominated', uids, L.nominated, unpacked_into(L.nominated)) end

-- {uids} nominated to each node item.
local function fetch_rooms(L, names) fetch(L, ':rooms', names, L.rooms, unpacked_into(L.rooms, true)) end

local function nominated(L, uid)
  if L.nominations == 0 then return false end
  if L.nominated[uid] == nil then fetch_nominated(L, {uid}) end
  return L.nominated[uid]
end

local function room(L, name)
  if not L.rooms[name] then fetch_rooms(L, {name}) end
  return L.rooms[name]
end

local function offer_of(L, id)
  if L.offers[id] == nil then fetch(L, ':nominations', {id}, L.offers, unpacked_into(L.offers)) end
  return L.offers[id]
end

local function put_offer(L, id, offer)
  L.offers[id] = offer
  L.dirty_offers[id] = true
end

local function set_nominated(L, uid, mem)
  local was = L.nominated[uid]
  L.nominations = L.nominations + (mem and 1 or 0) - (was and 1 or 0)
  L.nominated[uid] = mem
  L.dirty_nominated[uid] = true
end

local function without(list, value)
  local left = {}
  for _, one in ipairs(list) do
    if one ~= value then left[#left + 1] = one end
  end
  return left
end

local function enter_room(L, name, uid)
  table.insert(room(L, name), uid)
  L.dirty_rooms[name] = true
end

local function leave_room(L, name, uid)
  L.rooms[name] = without(room(L, name), uid)
  L.dirty_rooms[name] = true
end

local function unit(name) return {name, {disruptions = 1}} end

-- Victims may be chosen by others again, and their units of the budgets are given back.
local function close_offer(L, id, offer)
  for _, uid in ipairs(offer[OFR.VICTIMS]) do set_slot(L, 'victim/' .. uid, false) end
  for _, one in ipairs(offer[OFR.UNITS]) do add(L, unit(one[1]), 0, -1, -1) end
  put_offer(L, id, false)
end

local function end_nominated(L, uid)
  local mem = nominated(L, uid)
  if not mem then return end
  leave_room(L, mem[MEM.ITEM], uid)
  set_nominated(L, uid, false)
  L.unreserved[mem[MEM.ITEM]] = true
  local id = mem[MEM.OFFER]
  local offer = id ~= '' and offer_of(L, id)
  if offer then
    offer[OFR.UIDS] = without(offer[OFR.UIDS], uid)
    if #offer[OFR.UIDS] == 0 then close_offer(L, id, offer) else put_offer(L, id, offer) end
  end
end

-- A victim is terminating or gone: what it kept of the disruption budgets is for the API to count now.
local function end_victim(L, uid)
  if L.nominations == 0 then return end
  local holder = slot_holder(L, 'victim/' .. uid)
  local id = holder and string.match(holder, '^nomination:(.*)$')
  local offer = id and offer_of(L, id)
  if not offer then return end
  local units = {}
  for _, one in ipairs(offer[OFR.UNITS]) do
    if one[2] == uid then add(L, unit(one[1]), 0, -1, -1) else units[#units + 1] = one end
  end
  offer[OFR.VICTIMS], offer[OFR.UNITS] = without(offer[OFR.VICTIMS], uid), units
  set_slot(L, 'victim/' .. uid, false)
  put_offer(L, id, offer)
end

local function end_room(L, name)
  if L.nominations == 0 then return end
  for _, uid in ipairs(room(L, name)) do end_nominated(L, uid) end
end

-- Offers whose time is over: members that were never noted go, victims and units always.
local function sweep_offers(L)
  if L.nominations == 0 then return end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', L.key .. ':offers', '-inf', '(' .. L.now, 'LIMIT', 0, SWEEP)) do
    local offer, uids, names = offer_of(L, id), {}, {}
    if offer then
      fetch_nominated(L, offer[OFR.UIDS])
      for _, uid in ipairs(offer[OFR.UIDS]) do
        local mem = nominated(L, uid)
        if mem and mem[MEM.NOTED] then
          mem[MEM.OFFER] = ''
          set_nominated(L, uid, mem)
        elseif mem then
          leave_room(L, mem[MEM.ITEM], uid)
          set_nominated(L, uid, false)
          names[mem[MEM.ITEM]] = true
          uids[#uids + 1] = uid
        end
      end
      for _, one in ipairs(offer[OFR.UNITS]) do names[one[1]] = true end
      close_offer(L, id, offer)
      local items = {}
      for name in pairs(names) do items[#items + 1] = name end
      table.sort(items)
      L.expired[#L.expired + 1] = {id, uids, 'nomination', items}
    else
      put_offer(L, id, false)
    end
  end
end

-- What of an item is nominated to others than `own` uids and the job, as seen with a priority: sums by resource, and who
-- is the first of them; nil if nothing.
local function reserved_on(L, name, priority, job, own)
  local sums, first, holder
  for _, uid in ipairs(room(L, name)) do
    local mem = nominated(L, uid)
    if mem and not own[uid] and not (job ~= '' and mem[MEM.JOB] == job) and mem[MEM.PRIORITY] >= priority
      and not (mem[MEM.FOREIGN] and mem[MEM.PRIORITY] == priority) and (mem[MEM.NOTED] or mem[MEM.UNTIL] >= L.now) then
      sums = sums or {}
      for resource, amount in pairs(mem[MEM.AMOUNTS]) do sums[resource] = (sums[resource] or 0) + amount end
      if not first or mem[MEM.PRIORITY] > first or (mem[MEM.PRIORITY] == first and uid < holder) then
        first, holder = mem[MEM.PRIORITY], uid
      end
    end
  end
  return sums and {sums = sums, holder = holder}
end

local function fetch_reserved(L, names, uids)
  if L.nominations == 0 then return end
  local nodes, more = {}, {}
  for _, name in ipairs(names) do
    if is_node(name) then nodes[#nodes + 1] = name end
  end
  fetch_rooms(L, nodes)
  for _, uid in ipairs(uids) do more[#more + 1] = uid end
  for _, name in ipairs(nodes) do
    for _, uid in ipairs(L.rooms[name]) do more[#more + 1] = uid end
  end
  fetch_nominated(L, more)
end

-- By item, what a claim must leave to the nominations of others; nil if there is nothing.
local function reserved_for(L, priority, job, members)
  if L.nominations == 0 then return nil end
  local own, found, looked = {}, nil, {}
  for i = 1, #members do own[members[i][1]] = true end
  for i = 1, #members do
    for _, take in ipairs(members[i][6]) do
      local name = take[1]
      if not looked[name] and is_node(name) then
        looked[name] = true
        local kept = reserved_on(L, name, priority, job, own)
        if kept then
          found = found or {}
          found[name] = kept
        end
      end
    end
  end
  return found
end

writers[#writers + 1] = function(L)
  local set, del = split(L, L.dirty_nominated, L.nominated, cmsgpack.pack)
  write(L, 'HSET', ':nominated', set)
  write(L, 'HDEL', ':nominated', del)
  if next(L.dirty_nominated) then redis.call('HSET', L.key .. ':meta', 'nominated', L.nominations) end
  for name in pairs(L.dirty_rooms) do
    if #L.rooms[name] == 0 then L.rooms[name] = false end
  end
  set, del = split(L, L.dirty_rooms, L.rooms, cmsgpack.pack)
  write(L, 'HSET', ':rooms', set)
  write(L, 'HDEL', ':rooms', del)
  set, del = split(L, L.dirty_offers, L.offers, cmsgpack.pack)
  write(L, 'HSET', ':nominations', set)
  write(L, 'HDEL', ':nominations', del)
  write(L, 'ZREM', ':offers', del)
  for id in pairs(L.dirty_offers) do
    local offer = L.offers[id]
    if offer then redis.call('ZADD', L.key .. ':offers', offer[OFR.UNTIL], id) end
  end
end

-- `nominate`, before any eviction: room for all members of a preemptor at once, which its victims will free.
-- A request is {id, members, priority, job, victims, lease ms}; a member {uid, namespace, name, node item, amounts}; a
-- victim {uid, {items of its disruption budgets}}.

-- Offers of which nothing is left once these members are nominated anew: their victims and units are free for this one.
local function replaced_offers(L, own, members)
  local ids = {}
  for i = 1, #members do
    local mem = nominated(L, members[i][1])
    local offer = mem and mem[MEM.OFFER] ~= '' and offer_of(L, mem[MEM.OFFER])
    if offer and ids[mem[MEM.OFFER]] == nil then
      ids[mem[MEM.OFFER]] = offer
      for _, uid in ipairs(offer[OFR.UIDS]) do
        if not own[uid] then ids[mem[MEM.OFFER]] = false end
      end
    end
  end
  return ids
end

-- What the victims are charged with, by item and resource.
local function charges_of(L, victims)
  local charges = {}
  for i = 1, #victims do
    local rec = record(L, victims[i][1])
    if rec and rec[REC.STATE] == OBSERVED then
      for _, take in ipairs(takes_of(rec[REC.TAKES])) do
        local of = charges[take[1]] or {}
        charges[take[1]] = of
        for resource, amount in pairs(take[2]) do of[resource] = (of[resource] or 0) + amount end
      end
    end
  end
  return charges
end

local function shorts_on_node(L, name, sums, charges, reserved, shorts)
  local v, here = item(L, name), {}
  if v[1] ~= OPEN then
    shorts[#shorts + 1] = {name, '', 'closed', 0, 0, v[3], ''}
    return
  end
  for resource, sum in pairs(sums) do
    local room = free_of(name, v, column(L, resource)) + (charges[name] and charges[name][resource] or 0)
    local left = room - (reserved and reserved.sums[resource] or 0)
    if sum > 0 and (left < sum or sum > MAX_AMOUNT) then
      local kind = room >= sum and sum <= MAX_AMOUNT and 'nomination' or 'amount'
      here[#here + 1] = {name, resource, kind, sum, math.min(math.max(left, 0), MAX_AMOUNT), v[3],
        kind == 'nomination' and reserved.holder or ''}
    end
  end
  table.sort(here, by_key)
  for i = 1, #here do shorts[#shorts + 1] = here[i] end
end

local function shorts_of_nomination(L, priority, own, members, victims, replaced)
  local order, sums, shorts = {}, {}, {}
  for i = 1, #members do
    local name = members[i][4]
    if not sums[name] then sums[name], order[#order + 1] = {}, name end
    for resource, amount in pairs(members[i][5]) do sums[name][resource] = (sums[name][resource] or 0) + amount end
  end
  local charges = charges_of(L, victims)
  for _, name in ipairs(order) do
    shorts_on_node(L, name, sums[name], charges, reserved_on(L, name, priority, '', own), shorts)
  end
  local units, budgets = {}, {}
  for i = 1, #victims do
    local holder = slot_holder(L, 'victim/' .. victims[i][1])
    local id = holder and string.match(holder, '^nomination:(.*)$')
    if holder and not (id and replaced[id]) then
      shorts[#shorts + 1] = {'victim/' .. victims[i][1], '', 'slot', 1, 0, 0, holder}
    end
    for _, name in ipairs(victims[i][2]) do
      if not units[name] then units[name], budgets[#budgets + 1] = 0, name end
      units[name] = units[name] + 1
    end
  end
  for _, name in ipairs(budgets) do
    local v, given_back = item(L, name), 0
    for _, offer in pairs(replaced) do
      for _, one in ipairs(offer and offer[OFR.UNITS] or {}) do
        if one[1] == name then given_back = given_back + 1 end
      end
    end
    local free = free_of(name, v, column(L, 'disruptions')) + given_back
    if v[1] ~= OPEN then
      shorts[#shorts + 1] = {name, '', 'closed', 0, 0, 0, ''}
    elseif free < units[name] then
      shorts[#shorts + 1] = {name, 'disruptions', 'amount', units[name], math.max(free, 0), 0, ''}
    end
  end
  return shorts
end

local function nominate_one(L, request)
  local id, members, priority, job, victims, lease = request[1], request[2], request[3], request[4], request[5],
    request[6]
  if offer_of(L, id) then return {'ok'} end
  local own = {}
  for i = 1, #members do
    local uid = members[i][1]
    local rec = record(L, uid)
    if rec then return {'busy', uid, rec[REC.CLAIM]} end
    if marked(L, uid) then return {'busy', uid, ''} end
    own[uid] = true
  end
  local replaced = replaced_offers(L, own, members)
  local shorts = shorts_of_nomination(L, priority, own, members, victims, replaced)
  if #shorts > 0 then return {'conflict', shorts} end
  local uids, locked, units = {}, {}, {}
  for i = 1, #members do
    local m = members[i]
    end_nominated(L, m[1])
    set_nominated(L, m[1], {id, m[2], m[3], m[4], m[5], false, priority, job, false, '', L.now + lease})
    enter_room(L, m[4], m[1])
    uids[i] = m[1]
  end
  for i = 1, #victims do
    locked[i] = victims[i][1]
    set_slot(L, 'victim/' .. victims[i][1], 'nomination:' .. id)
    for _, name in ipairs(victims[i][2]) do
      add(L, unit(name), 0, 1, 1)
      units[#units + 1] = {name, victims[i][1]}
    end
  end
  put_offer(L, id, {L.now + lease, uids, locked, units})
  return {'ok'}
end

-- {epoch, requests} -> answers.
local function nominate(keys, args)
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  local epoch, requests = input[1], input[2]
  local answers = {}
  local refused = refusal(L, epoch)
  if refused then
    for i = 1, #requests do answers[i] = {refused, L.epoch} end
    return cmsgpack.pack(answers)
  end
  local uids, names = {}, {}
  for i = 1, #requests do
    for _, m in ipairs(requests[i][2]) do
      uids[#uids + 1] = m[1]
      names[#names + 1] = m[4]
    end
    for _, victim in ipairs(requests[i][5]) do uids[#uids + 1] = victim[1] end
  end
  if #uids > MAX_MEMBERS then
    return redis.error_reply('REFUSED ' .. #uids .. ' members and victims in one call, at most ' .. MAX_MEMBERS)
  end
  fetch_items(L, names)
  fetch_records(L, uids)
  fetch_marks(L, uids)
  fetch_reserved(L, names, uids)
  sweep(L)
  for i = 1, #requests do answers[i] = nominate_one(L, requests[i]) end
  flush(L)
  return cmsgpack.pack(answers)
end

-- Units of disruption budgets that nominations hold, by item: they are held without a record.
local function units_held(L)
  local held = {}
  if L.nominations == 0 then return held end
  for _, packed in ipairs(redis.call('HVALS', L.key .. ':nominations')) do
    for _, one in ipairs(cmsgpack.unpack(packed)[OFR.UNITS]) do held[one[1]] = (held[one[1]] or 0) + 1 end
  end
  return held
end

-- {cursor} -> {next cursor, {uid, member}}.
local function scan_nominated(keys, args)
  local input = cmsgpack.unpack(args[1])
  local reply = redis.call('HSCAN', keys[1] .. ':nominated', input[1], 'COUNT', 1000)
  local rows, raw = {}, reply[2]
  for i = 1, #raw, 2 do rows[#rows + 1] = {raw[i], cmsgpack.unpack(raw[i + 1])} end
  return cmsgpack.pack({reply[1], rows})
end

-- Row 1 and 2: claim and renew.
-- A claim request is {id, members, slots, guards, priority, token, trace, strict, ticket, group, wound, repels, given},
-- without the last four by older clients and where they say nothing; the last two are for placements.lua. A guard is {name, version planned with, whether the claim bumps it}; a
-- member is {uid, namespace, name, node, number of the argument that holds its takes}: they are packed on their own, so
-- that the record stores them as they came, see takes_of.
-- The answer to one is its token, {'wounded', token, claims that it ended}, or {status, ...}.

-- The members of a claim that have no record yet; or nil and the answer.
local function new_members(L, id, members, entry)
  local fresh, seen = {}, {}
  for i = 1, #members do
    local uid = members[i][1]
    local rec = L.records[uid]
    if rec then
      if rec[REC.CLAIM] ~= id then return nil, {'busy', uid, rec[REC.CLAIM]} end
      -- Repeated when all of it had been observed or released in the meantime.
      if not entry then return nil, rec[REC.TOKEN] end
    elseif L.marks[uid] then
      return nil, {'busy', uid, ''}
    elseif not seen[uid] then
      seen[uid] = true
      fresh[#fresh + 1] = members[i]
    end
  end
  return fresh
end

local function judge(L, request, owner, lease)
  local id, members, slots, guards, token = request[1], request[2], request[3], request[4], request[6]
  local entry = L.claims[id]
  if entry then
    if token == 0 then return entry[CLM.TOKEN] end
    if entry[CLM.TOKEN] ~= token or entry[CLM.BINDING] > 0 or overdue(L, id, entry[CLM.OWNER]) then return {'stale'} end
  elseif token ~= 0 then
    return {'stale'}
  end
  local fresh, answer = new_members(L, id, members, entry)
  if not fresh then return answer end
  if #fresh == 0 then return token end
  local ticket, group = request[9], request[10]
  if ticket == 0 and group and group ~= '' then ticket = ticket_of(L, group) end
  local taken = {}
  for i = 1, #slots do
    local slot, uid = slots[i][1], slots[i][2]
    local holder, wanted = slot_holder(L, slot), uid ~= '' and uid or 'claim:' .. id
    if holder and holder ~= wanted then taken[#taken + 1] = {slot, '', 'slot', 1, 0, 0, holder} end
  end
  check_guards(L, guards, taken)
  local last = #fresh
  local at, at_take, wounded
  local reserved = reserved_for(L, request[5], group or '', fresh)
  if #taken == 0 and not reserved then
    at, at_take = hold(L, fresh, 1, last, #fresh[last][6])
    if at then hold(L, fresh, -1, at, at_take) end
  end
  if at or reserved or #taken > 0 then
    -- The exact judgement, of the sums: amounts are signed, so one that was short on the way may come out right.
    local needs = needs_of(L, fresh)
    local shorts = shorts_of(L, needs, reserved)
    for i = 1, #taken do shorts[#shorts + 1] = taken[i] end
    if #shorts > 0 then
      local victims = request[11] and to_wound(L, entry, request[5], ticket, needs, taken, reserved)
      if not victims then return {'conflict', shorts} end
      wounded = wound(L, victims)
    end
    for i = 1, last do
      for _, take in ipairs(fresh[i][6]) do add(L, take, 0, 1, 1) end
    end
  else
    for i = 1, last do
      for _, take in ipairs(fresh[i][6]) do L.dirty[take[1]] = L.items[take[1]] end
    end
  end
  if not entry then
    L.token = L.token + 1
    token = L.token
    entry = {token, owner, request[8], request[5], ticket, 0, 0, {}, {}}
  end
  local own_slots = {}
  for i = 1, #slots do
    local slot, uid = slots[i][1], slots[i][2]
    if uid == '' then
      set_slot(L, slot, 'claim:' .. id)
      entry[CLM.SLOTS][#entry[CLM.SLOTS] + 1] = slot
    else
      set_slot(L, slot, uid)
      own_slots[uid] = own_slots[uid] or {}
      own_slots[uid][#own_slots[uid] + 1] = slot
    end
  end
  local uids = entry[CLM.UIDS]
  for i = 1, #fresh do
    local m = fresh[i]
    put_record(L, m[1], {HELD, id, token, owner, m[2], m[3], m[4], m[5], '', 0, '', request[7], own_slots[m[1]] or {}})
    uids[#uids + 1] = m[1]
    if L.nominations > 0 then end_nominated(L, m[1]) end
  end
  bump_all(L, guards)
  recent.note(L, owner, fresh, request[12], request[13])
  set_lease(L, id, entry[CLM.OWNER], L.now + lease, entry[CLM.HELD] > 0)
  entry[CLM.HELD] = entry[CLM.HELD] + #fresh
  put_claim(L, id, entry)
  count(L, HELD, #fresh)
  return wounded and {'wounded', token, wounded} or token
end

local function claim(keys, args)
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  local epoch, owner, lease, requests = input[1], input[2], input[3], input[4]
  local answers = {}
  local refused = refusal(L, epoch)
  if refused then
    for i = 1, #requests do answers[i] = {refused, L.epoch} end
    return cmsgpack.pack(answers)
  end
  local ids, uids, names, known, guards, groups = {}, {}, {}, {}, {}, {}
  for i = 1, #requests do
    local request = requests[i]
    ids[i] = request[1]
    if request[10] and request[10] ~= '' then groups[#groups + 1] = request[10] end
    for _, m in ipairs(request[2]) do
      uids[#uids + 1] = m[1]
      m[5] = args[m[5]]
      local takes = takes_of(m[5])
      m[6] = takes
      for j = 1, #takes do
        local name = takes[j][1]
        if not known[name] then
          known[name] = true
          names[#names + 1] = name
        end
      end
    end
    for _, guard in ipairs(request[4]) do
      local list = is_node(guard[1]) and names or guards
      list[#list + 1] = guard[1]
    end
  end
  if #uids > MAX_MEMBERS then
    return redis.error_reply('REFUSED ' .. #uids .. ' members in one call, at most ' .. MAX_MEMBERS)
  end
  fetch_items(L, names)
  fetch_claims(L, ids)
  fetch_records(L, uids)
  fetch_marks(L, uids)
  fetch_guards(L, guards)
  fetch_tickets(L, groups)
  fetch_reserved(L, names, uids)
  sweep(L)
  for i = 1, #requests do answers[i] = judge(L, requests[i], owner, lease) end
  -- After the answers, if the caller says what it knows.
  if input[5] then answers[#requests + 1] = recent.news(L, input[5], owner) end
  flush(L)
  return cmsgpack.pack(answers)
end

local function renew(keys, args)
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  local epoch, owner, lease = input[1], input[2], input[3]
  local refused = refusal(L, epoch)
  if refused then return cmsgpack.pack({refused, L.epoch, 0}) end
  sweep(L)
  flush(L)
  local held = tonumber(redis.call('HGET', L.key .. ':owners', owner) or 0)
  -- Incarnations are never reused: what lapsed long ago belongs to nobody.
  redis.call('ZREMRANGEBYSCORE', L.key .. ':renewals', '-inf', L.now - 3600000)
  if held > 0 then redis.call('ZADD', L.key .. ':renewals', 'GT', L.now + lease, owner) end
  return cmsgpack.pack({'ok', L.epoch, held})
end

-- Rows 3, 7 and 8: advance and release.

-- One decision: {claim, token, epoch, decision, uids}. Answer {status, attempt, gone, {uid, node, ...}, epoch}.
local function advance_one(L, input)
  local id, token, epoch, decision, uids = input[1], input[2], input[3], input[4], input[5]
  if epoch ~= L.epoch then return {'epoch', 0, uids, {}, L.epoch} end
  local going, gone, observed, held = {}, {}, {}, 0
  for _, uid in ipairs(uids) do
    local rec = record(L, uid)
    local ours = rec and rec[REC.CLAIM] == id and rec[REC.TOKEN] == token
    if rec and rec[REC.STATE] == OBSERVED then
      observed[#observed + 1] = uid
      observed[#observed + 1] = rec[REC.NODE]
    elseif ours and rec[REC.STATE] == HELD and not overdue(L, id, rec[REC.OWNER]) then
      going[#going + 1] = uid
      held = held + 1
    elseif ours and rec[REC.STATE] == BINDING and rec[REC.DECISION] == decision then
      going[#going + 1] = uid
    else
      gone[#gone + 1] = uid
    end
  end
  local entry = held > 0 and claim_of(L, id)
  -- A strict claim is advanced whole: neither without members that ended nor without members the decision left out.
  if entry and entry[CLM.STRICT] and (#gone > 0 or held ~= entry[CLM.HELD]) then
    return {'gone', 0, uids, observed, L.epoch}
  end
  if #going == 0 and #observed == 0 then return {'gone', 0, gone, {}, L.epoch} end
  local attempt = 0
  for _, uid in ipairs(going) do
    local rec = record(L, uid)
    if rec[REC.STATE] == HELD then
      rec[REC.STATE], rec[REC.DECISION] = BINDING, decision
    end
    rec[REC.ATTEMPTS] = rec[REC.ATTEMPTS] + 1
    attempt = math.max(attempt, rec[REC.ATTEMPTS])
    put_record(L, uid, rec)
  end
  if entry then
    entry[CLM.HELD], entry[CLM.BINDING] = entry[CLM.HELD] - held, entry[CLM.BINDING] + held
    if entry[CLM.HELD] == 0 then set_lease(L, id, entry[CLM.OWNER], false, true) end
    put_claim(L, id, entry)
    count(L, HELD, -held)
    count(L, BINDING, held)
  end
  return {'ok', attempt, gone, observed, L.epoch}
end

local function advance(keys, args)
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  local role_epoch, incarnation, decisions = input[1], input[2], input[3]
  local answers, status = {}, nil
  if not L.open then
    status = 'closed'
  elseif not leads(L, 'gateway', role_epoch, incarnation) then
    status = 'stale'
  end
  if status then
    for i = 1, #decisions do answers[i] = {status, 0, decisions[i][5], {}, L.epoch} end
    return cmsgpack.pack(answers)
  end
  local uids, ids = {}, {}
  for i = 1, #decisions do
    ids[i] = decisions[i][1]
    for _, uid in ipairs(decisions[i][5]) do uids[#uids + 1] = uid end
  end
  if #uids > MAX_MEMBERS then
    return redis.error_reply('REFUSED ' .. #uids .. ' members in one call, at most ' .. MAX_MEMBERS)
  end
  fetch_records(L, uids)
  fetch_claims(L, ids)
  sweep(L)
  for i = 1, #decisions do answers[i] = advance_one(L, decisions[i]) end
  flush(L)
  return cmsgpack.pack(answers)
end

-- One release: {claim, token, uids, by gateway, role epoch}. Answer {status, released, refused, items, epoch}.
local function release_one(L, input, incarnation)
  local id, token, uids, by_gateway, role_epoch = input[1], input[2], input[3], input[4], input[5]
  if by_gateway and not leads(L, 'gateway', role_epoch, incarnation) then return {'stale', {}, uids, {}, L.epoch} end
  local entry = claim_of(L, id)
  if entry and entry[CLM.TOKEN] ~= token then return {'stale', {}, uids, {}, L.epoch} end
  local wanted = by_gateway and BINDING or HELD
  -- A scheduler gives a strict claim back whole, so that it never holds a part.
  if #uids == 0 or (entry and entry[CLM.STRICT] and not by_gateway) then uids = entry and entry[CLM.UIDS] or uids end
  local released, refused, items, names = {}, {}, {}, {}
  for _, uid in ipairs(uids) do
    local rec = record(L, uid)
    if rec and rec[REC.CLAIM] == id and rec[REC.TOKEN] == token then
      if rec[REC.STATE] == wanted then
        for _, take in ipairs(takes_of(rec[REC.TAKES])) do items[take[1]] = true end
        end_record(L, uid, rec)
        released[#released + 1] = uid
      else
        refused[#refused + 1] = uid
      end
    end
  end
  for name in pairs(items) do names[#names + 1] = name end
  table.sort(names)
  return {'ok', released, refused, names, L.epoch}
end

local function release(keys, args)
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  local epoch, incarnation, requests = input[1], input[2], input[3]
  local answers = {}
  local refused = refusal(L, epoch)
  if refused then
    for i = 1, #requests do answers[i] = {refused, {}, {}, {}, L.epoch} end
    return cmsgpack.pack(answers)
  end
  local uids, ids = {}, {}
  for i = 1, #requests do
    ids[i] = requests[i][1]
    for _, uid in ipairs(requests[i][3]) do uids[#uids + 1] = uid end
  end
  fetch_claims(L, ids)
  fetch_records(L, uids)
  sweep(L)
  for i = 1, #requests do answers[i] = release_one(L, requests[i], incarnation) end
  flush(L)
  return cmsgpack.pack(answers)
end

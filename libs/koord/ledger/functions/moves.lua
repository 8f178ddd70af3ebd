-- Moves that several functions share: how a record leaves a state, expiry, and who may call.

-- One record fewer of a claim in its state; the claim's entry, lease and slots go with the last one.
local function leave_claim(L, rec)
  local id = rec[REC.CLAIM]
  local entry = claim_of(L, id)
  if not entry then return end
  local at = rec[REC.STATE] == HELD and CLM.HELD or CLM.BINDING
  entry[at] = entry[at] - 1
  if rec[REC.STATE] == HELD and entry[CLM.HELD] == 0 then set_lease(L, id, entry[CLM.OWNER], false, true) end
  if entry[CLM.HELD] + entry[CLM.BINDING] == 0 then
    for _, slot in ipairs(entry[CLM.SLOTS]) do set_slot(L, slot, false) end
    put_claim(L, id, false)
  else
    put_claim(L, id, entry)
  end
end

-- The record of uid ends, whatever its state was, and gives back exactly what is stored.
local function end_record(L, uid, rec)
  local state = rec[REC.STATE]
  discharge(L, takes_of(rec[REC.TAKES]), state == OBSERVED)
  for _, slot in ipairs(rec[REC.SLOTS]) do set_slot(L, slot, false) end
  if state ~= OBSERVED then leave_claim(L, rec) end
  count(L, state, -1)
  put_record(L, uid, false)
end

-- All HELD members of a claim end.
local function end_held(L, id, entry)
  local uids, items = {}, {}
  fetch_records(L, entry[CLM.UIDS])
  for _, uid in ipairs(entry[CLM.UIDS]) do
    local rec = record(L, uid)
    if rec and rec[REC.CLAIM] == id and rec[REC.STATE] == HELD then
      for _, take in ipairs(takes_of(rec[REC.TAKES])) do items[take[1]] = true end
      end_record(L, uid, rec)
      uids[#uids + 1] = uid
    end
  end
  return uids, items
end

-- Row 5: a HELD member is hit. A strict claim ends whole.
local function hit_held(L, uid, rec, reason)
  local id = rec[REC.CLAIM]
  local entry = claim_of(L, id)
  local uids = {uid}
  if entry and entry[CLM.STRICT] then
    uids = end_held(L, id, entry)
  else
    end_record(L, uid, rec)
  end
  L.ended[#L.ended + 1] = {id, uids, reason}
end

-- Until when the claims of an incarnation last at least, by its renewals.
local function renewed_until(L, owner)
  local til = L.renewals[owner]
  if til == nil then
    til = tonumber(redis.call('ZSCORE', L.key .. ':renewals', owner) or 0)
    L.renewals[owner] = til
  end
  return til
end

-- Row 4: leases that are over, at most SWEEP of them. A renewal moves an incarnation's time once; its claims' own times
-- are moved only when they come up here, so that a renewal costs the same for one claim and for a thousand.
local function sweep(L)
  local due = redis.call('ZRANGEBYSCORE', L.key .. ':leases', '-inf', '(' .. L.now, 'LIMIT', 0, SWEEP)
  L.swept_all = #due < SWEEP
  sweep_offers(L)
  if #due == 0 then return end
  fetch_claims(L, due)
  local members = 0
  for _, id in ipairs(due) do
    local entry = claim_of(L, id)
    local til = entry and renewed_until(L, entry[CLM.OWNER]) or 0
    if not entry then
      L.leases[id] = false
    elseif til >= L.now then
      L.leases[id] = til
    elseif members >= MAX_MEMBERS then
      L.swept_all = false
      break
    else
      local uids, items = end_held(L, id, entry)
      members = members + #uids
      local names = {}
      for name in pairs(items) do names[#names + 1] = name end
      L.expired[#L.expired + 1] = {id, uids, 'expired', names}
    end
  end
end

-- Whether a HELD claim's time is over although the sweep did not come to it.
local function overdue(L, id, owner)
  if L.swept_all then return false end
  local lease = L.leases[id]
  if lease == nil then lease = tonumber(redis.call('ZSCORE', L.key .. ':leases', id) or 0) end
  return lease and lease < L.now and renewed_until(L, owner) < L.now
end

-- nil if a call of this epoch may go on, else the answer.
local function refusal(L, epoch)
  if not L.open then return 'closed' end
  if epoch ~= L.epoch then return 'epoch' end
  return nil
end

-- Whether the caller is the newest leader of its role; a newer epoch than any seen is taken over.
local function leads(L, role, epoch, incarnation)
  local holder = L.roles[role]
  if not holder then
    local stored = redis.call('HGET', L.key .. ':roles', role)
    holder = stored and cmsgpack.unpack(stored) or {0, ''}
  end
  if epoch < holder[1] or (epoch == holder[1] and incarnation ~= holder[2]) or epoch <= 0 then return false end
  if epoch > holder[1] then L.roles[role] = {epoch, incarnation} end
  return true
end

-- Names of the items whose free amount changed in this call, and of those where some amount grew.
local function changes(L)
  local changed, freed = {}, {}
  for name, v in pairs(L.altered) do
    local old = L.raw[name]
    local before = old and {struct.unpack(doubles(#old / 8), old)} or {UNKNOWN}
    if old then before[#old / 8 + 1] = nil end
    local differs = (before[1] == OPEN) ~= (v[1] == OPEN)
    local grew = differs and v[1] == OPEN
    for c = 1, (#v - HEAD) / WIDTH do
      local now, was = free_of(name, v, c), free_of(name, before, c)
      if now ~= was then differs = true end
      if now > was then grew = true end
    end
    if L.unreserved[name] then differs, grew = true, true end
    if differs then changed[#changed + 1] = name end
    if grew and v[1] == OPEN then freed[#freed + 1] = name end
  end
  -- A nomination that ended leaves room to others, though no amount moved.
  for name in pairs(L.unreserved) do
    if not L.altered[name] and item(L, name)[1] == OPEN then
      changed[#changed + 1] = name
      freed[#freed + 1] = name
    end
  end
  table.sort(changed)
  table.sort(freed)
  return changed, freed
end

-- Rows 4, 5 and 9 to 13: what the reconciler sees in the API, limits, and what follows for HELD claims.
-- An observation is an array that begins with its letter, see wire.py; takes are arguments of their own, as in a claim.

-- resourceVersions are whole numbers of any length, as text: nil or '' is older than all.
local function older(a, b)
  a, b = string.gsub(a, '^0+', ''), string.gsub(b, '^0+', '')
  if #a ~= #b then return #a < #b end
  return a < b
end

-- What a running pod alone has, as the API shows it: it gets what nobody has, and what a HELD claim has, which ends. What
-- another pod has that runs or is being bound stays that one's.
local function have_slots(L, uid, rec, slots)
  for _, slot in ipairs(slots or {}) do
    local holder = slot_holder(L, slot)
    local other = holder and holder ~= uid and record(L, holder)
    if other and other[REC.STATE] == HELD then
      hit_held(L, holder, other, 'elsewhere')
      holder = slot_holder(L, slot)
    end
    if not holder then
      set_slot(L, slot, uid)
      rec[REC.SLOTS][#rec[REC.SLOTS] + 1] = slot
    end
  end
end

-- Rows 10, 11, 12 and, for another node than claimed, 5 or 9 before 11.
-- `bumps` are the guards of the terms that the pod carries or matches: a claim has bumped them already, row 11 does.
-- `recharge`: what the charge depends on changed, though the object did not.
local function seen(L, uid, namespace, name, node, takes, rv, bumps, recharge, slots)
  if L.nominations > 0 then end_nominated(L, uid) end
  if marked(L, uid) then return end
  local rec = record(L, uid)
  if rec and rec[REC.STATE] == OBSERVED then
    if older(rec[REC.RV], rv) or (recharge and not older(rv, rec[REC.RV])) then
      if rec[REC.TAKES] ~= takes then
        local old = takes_of(rec[REC.TAKES])
        charge(L, takes_of(takes))
        discharge(L, old, true)
      end
      rec[REC.RV], rec[REC.NODE], rec[REC.TAKES] = rv, node, takes
      have_slots(L, uid, rec, slots)
      put_record(L, uid, rec)
    end
    return
  end
  if rec and rec[REC.NODE] ~= node then
    if rec[REC.STATE] == HELD then
      hit_held(L, uid, rec, 'elsewhere')
    else
      end_record(L, uid, rec)
      L.ended[#L.ended + 1] = {rec[REC.CLAIM], {uid}, 'elsewhere'}
    end
    rec = false
  end
  if rec then
    local state = rec[REC.STATE]
    if rec[REC.TAKES] == takes then
      settle(L, takes_of(takes))
    else
      charge(L, takes_of(takes))
      discharge(L, takes_of(rec[REC.TAKES]), false)
    end
    leave_claim(L, rec)
    count(L, state, -1)
    rec[REC.STATE], rec[REC.TAKES], rec[REC.RV] = OBSERVED, takes, rv
  else
    charge(L, takes_of(takes))
    for _, guard in ipairs(bumps or {}) do bump(L, guard) end
    rec = {OBSERVED, '', 0, '', namespace, name, node, takes, '', 0, rv, '', {}}
  end
  count(L, OBSERVED, 1)
  have_slots(L, uid, rec, slots)
  put_record(L, uid, rec)
  L.observed_uids[#L.observed_uids + 1] = uid
end

local function end_observed_or_binding(L, uid, rec, reason)
  end_record(L, uid, rec)
  if rec[REC.STATE] == OBSERVED then
    L.gone_uids[#L.gone_uids + 1] = uid
  else
    L.ended[#L.ended + 1] = {rec[REC.CLAIM], {uid}, reason}
  end
end

-- Rows 5, 9, 13: deleted, terminal, replaced.
local function gone(L, uid, rv, remember)
  local rec = record(L, uid)
  if rec and rec[REC.STATE] == OBSERVED and rv ~= '' and older(rv, rec[REC.RV]) then return end
  if L.nominations > 0 then
    end_nominated(L, uid)
    end_victim(L, uid)
  end
  if rec and rec[REC.STATE] == HELD then
    hit_held(L, uid, rec, 'gone')
  elseif rec then
    end_observed_or_binding(L, uid, rec, 'gone')
  end
  L.gone[uid], L.marks[uid] = L.now + remember, true
end

-- A QueueUnit whose admissions were taken back.
local function unbound(L, uid, rv)
  local rec = record(L, uid)
  if rec and rec[REC.STATE] == OBSERVED and (rv == '' or older(rec[REC.RV], rv)) then
    end_observed_or_binding(L, uid, rec, 'unbound')
  end
end

-- Row 9 by a settle answer, unless the record was advanced again since it was read: a write may have followed.
local function settled(L, uid, token, attempts)
  local rec = record(L, uid)
  if rec and rec[REC.STATE] == BINDING and rec[REC.TOKEN] == token and rec[REC.ATTEMPTS] == attempts then
    end_observed_or_binding(L, uid, rec, 'unbound')
  end
end

local function seen_version(L, name)
  local rv = L.seen[name]
  if rv == nil then
    rv = redis.call('HGET', L.key .. ':seen', name) or false
    L.seen[name] = rv
  end
  return rv or ''
end

local function set_seen(L, name, rv)
  L.seen[name] = rv
  L.dirty_seen[name] = true
end

local function set_limits(L, name, limits)
  local v = item(L, name)
  for at = HEAD, #v - 1, WIDTH do v[at + LIMIT] = no_limit(name) end
  for resource, limit in pairs(limits) do
    local c = resource ~= OTHERS and L.columns[resource]
    -- Of names that share a column nobody can say which of them there is room for.
    if c then v[base(name, v, c) + LIMIT] = bounded(limit) end
  end
  v[1] = OPEN
  L.dirty[name], L.altered[name], L.pressed[name], L.closed[name] = v, v, true, nil
end

local function close_item(L, name, rv)
  if rv ~= '' and older(rv, seen_version(L, name)) then return end
  local v = item(L, name)
  if v[1] ~= OPEN then return end
  v[1] = CLOSED
  L.dirty[name], L.altered[name] = v, v
  if rv ~= '' then set_seen(L, name, rv) end
  if is_node(name) then
    L.closed[name] = true
    end_room(L, name)
  end
end

-- Whether a take meets an amount of its node that is below zero, or a node that closed.
local function is_hit(L, take)
  local name = take[1]
  if L.closed[name] then return true end
  if not L.short[name] then return false end
  for resource, amount in pairs(take[2]) do
    if amount > 0 and free_of(name, L.items[name], column(L, resource)) < 0 then return true end
  end
  return false
end

-- Row 5 for closed nodes and physical overcommit: HELD claims on them go, newest token first, until nothing is below
-- zero. Only in this rare case are all HELD claims looked at.
local function evict_held(L)
  L.short = {}
  for name in pairs(L.pressed) do
    local v = L.items[name]
    if is_node(name) and v[1] == OPEN then
      for c = 1, (#v - HEAD) / WIDTH do
        if free_of(name, v, c) < 0 and v[HEAD + (c - 1) * WIDTH + HOLD] > 0 then L.short[name] = true end
      end
    end
  end
  if not next(L.short) and not next(L.closed) then return end
  local ids = redis.call('ZRANGE', L.key .. ':leases', 0, -1)
  fetch_claims(L, ids)
  local claims = {}
  for _, id in ipairs(ids) do
    local entry = claim_of(L, id)
    if entry and entry[CLM.HELD] > 0 then claims[#claims + 1] = {id, entry} end
  end
  table.sort(claims, function(a, b) return a[2][CLM.TOKEN] > b[2][CLM.TOKEN] end)
  for _, pair in ipairs(claims) do
    fetch_records(L, pair[2][CLM.UIDS])
    for _, uid in ipairs(pair[2][CLM.UIDS]) do
      local rec = record(L, uid)
      if rec and rec[REC.CLAIM] == pair[1] and rec[REC.STATE] == HELD then
        for _, take in ipairs(takes_of(rec[REC.TAKES])) do
          if is_hit(L, take) then
            hit_held(L, uid, rec, L.closed[take[1]] and 'node' or 'overcommit')
            break
          end
        end
      end
    end
  end
end

-- Node amounts still below zero among those that this call pressed.
local function overcommitted(L)
  local rows = {}
  for name in pairs(L.pressed) do
    local v = L.items[name]
    if is_node(name) and v[1] == OPEN then
      for resource, c in pairs(L.columns) do
        local free = free_of(name, v, c)
        if free < 0 then
          local b = HEAD + (c - 1) * WIDTH
          rows[#rows + 1] = {name, resource, 'amount', v[b + USED] + v[b + HOLD], v[b + LIMIT], v[3], ''}
        end
      end
    end
  end
  table.sort(rows, function(a, b) return a[1] .. '\n' .. a[2] < b[1] .. '\n' .. b[2] end)
  return rows
end

local function take_expired(L)
  local reports = {}
  for _, packed in ipairs(redis.call('LRANGE', L.key .. ':expired', 0, -1)) do
    reports[#reports + 1] = cmsgpack.unpack(packed)
  end
  redis.call('DEL', L.key .. ':expired')
  for _, report in ipairs(L.expired) do reports[#reports + 1] = report end
  L.expired = {}
  return reports
end

-- status.nominatedNodeName as a pod shows it, '' for `name` once it was cleared. What the API says is so, without a check;
-- only an offer that is still to be noted outlives a field that is empty.
local function noted(L, uid, namespace, pod, name, amounts, priority, job, foreign, rv)
  if record(L, uid) or marked(L, uid) then return end
  local mem = nominated(L, uid)
  if mem and older(rv, mem[MEM.RV]) then return end
  if name == '' then
    if mem and mem[MEM.NOTED] then end_nominated(L, uid) end
    return
  end
  if mem and mem[MEM.ITEM] == name then
    if job == '' then job = mem[MEM.JOB] end
    set_nominated(L, uid, {mem[MEM.OFFER], namespace, pod, name, amounts, true, priority, job, foreign, rv, 0})
    return
  end
  end_nominated(L, uid)
  if item(L, name)[1] ~= OPEN then return end
  set_nominated(L, uid, {'', namespace, pod, name, amounts, true, priority, job, foreign, rv, 0})
  enter_room(L, name, uid)
end

local apply = {
  M = function(L, o) noted(L, o[2], o[3], o[4], o[5], o[6], o[7], o[8], o[9], o[10]) end,
  T = function(L, o) end_victim(L, o[2]) end,
  P = function(L, o) seen(L, o[2], o[3], o[4], o[5], o[6], o[7], o[8], o[9], o[10]) end,
  G = function(L, o, remember) gone(L, o[2], o[3], remember) end,
  U = function(L, o) unbound(L, o[2], o[3]) end,
  S = function(L, o) settled(L, o[2], o[3], o[4]) end,
  N = function(L, o)
    if older(o[4], seen_version(L, o[2])) then return end
    set_limits(L, o[2], o[3])
    set_seen(L, o[2], o[4])
    if o[5] and o[5] ~= 0 then item(L, o[2])[3] = o[5] end
  end,
  L = function(L, o) set_limits(L, o[2], o[3]) end,
  C = function(L, o) close_item(L, o[2], o[3]) end,
}

-- Input {role, role epoch, incarnation, epoch, gone ms, observations, epoch of the state stream, sequence, whether the
-- caller knows the answer's last field}. Epoch and sequence say up to where the reconciler has read that stream; they are
-- kept for the one that follows it.
-- Answer {status, epoch, changed, freed, released, expired, observed, gone, overcommitted, nameless as of give_columns}.
local function observe(keys, args)
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  local role, role_epoch, incarnation, epoch, remember, observations =
    input[1], input[2], input[3], input[4], input[5], input[6]
  -- Before it is opened a ledger is filled by observations; data of an earlier server process must be dropped first.
  if L.run_id ~= '' and not L.begun then return cmsgpack.pack({'closed', L.epoch}) end
  if epoch ~= L.epoch then return cmsgpack.pack({'epoch', L.epoch}) end
  if not leads(L, role, role_epoch, incarnation) then return cmsgpack.pack({'stale', L.epoch}) end
  if #observations > MAX_MEMBERS then
    return redis.error_reply('REFUSED ' .. #observations .. ' observations in one call, at most ' .. MAX_MEMBERS)
  end
  for i = 1, #observations do
    local o = observations[i]
    if role == 'quota' and (is_node(o[2]) or (o[1] ~= 'L' and o[1] ~= 'C')) then
      return redis.error_reply('REFUSED ' .. o[2] .. ': the quota leader keeps quota limits only')
    end
  end
  L.observed_uids, L.gone_uids = {}, {}
  local uids = {}
  for i = 1, #observations do
    local o = observations[i]
    if o[1] == 'P' or o[1] == 'G' or o[1] == 'U' or o[1] == 'S' or o[1] == 'M' then uids[#uids + 1] = o[2] end
  end
  fetch_records(L, uids)
  fetch_marks(L, uids)
  if L.nominations > 0 then fetch_nominated(L, uids) end
  local ids, names = {}, {}
  for i = 1, #observations do
    local o = observations[i]
    if o[1] == 'P' then
      o[6] = args[o[6]]
      for _, take in ipairs(takes_of(o[6])) do names[#names + 1] = take[1] end
    elseif o[1] == 'N' or o[1] == 'L' or o[1] == 'C' then
      names[#names + 1] = o[2]
    end
  end
  for _, uid in ipairs(uids) do
    local rec = L.records[uid]
    if rec and rec[REC.STATE] ~= OBSERVED then ids[#ids + 1] = rec[REC.CLAIM] end
  end
  fetch_items(L, names)
  fetch_claims(L, ids)
  local nameless = give_columns(L, observations)
  sweep(L)
  for i = 1, #observations do apply[observations[i][1]](L, observations[i], remember) end
  evict_held(L)
  local changed, freed = changes(L)
  local rows = overcommitted(L)
  local expired = role == 'reconciler' and take_expired(L) or {}
  redis.call('ZREMRANGEBYSCORE', L.key .. ':gone', '-inf', L.now)
  prune_guards(L)
  prune_tickets(L)
  if L.run_id == '' then redis.call('HSET', L.key .. ':meta', 'run_id', own_run_id(), 'open', '0', 'epoch', L.epoch) end
  if input[7] then redis.call('HSET', L.key .. ':meta', 'stream', input[7], 'folded', input[8]) end
  flush(L)
  local answer = {'ok', L.epoch, changed, freed, L.ended, expired, L.observed_uids, L.gone_uids, rows}
  if input[9] then answer[10] = nameless end
  return cmsgpack.pack(answer)
end

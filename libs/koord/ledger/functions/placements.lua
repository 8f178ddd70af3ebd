-- What was claimed lately, in the order of the claims: (anti-)affinity, spread and the like are rules about pods that other
-- schedulers are placing at this moment, and no sum or slot says them. Whoever claims under such a rule reads with the
-- answer what was placed before its claim that it did not know of, judges its own placement anew and takes it back if the
-- rule is broken: of two claims the later one always knows the earlier.
--
-- A line is owner, uid, node, namespace/name and what the pod was given there (its annotations as JSON, or ''), separated by
-- line feeds. :placements has all lines, :repellers those of claims that keep others off (anti-affinity), which everybody
-- reads. Both are numbered from the start of the ledger, meta.placed and meta.repelled count them, and their ends are kept.

-- Lines are written only while somebody else reads them: :followers says who asked last when. Who was silent for too long
-- has to read the records, and so has whoever comes anew; what is claimed from then on is told.

-- One table: a library may have two hundred names of its own.
local recent = {KEPT = {[':placements'] = 65536, [':repellers'] = 16384}, FOLLOW_MS = 600000, NOTE_MS = 60000}

-- When each of those who follow asked last, ms.
function recent.followers(L)
  if not L.followers then
    local raw = redis.call('HGETALL', L.key .. ':followers')
    L.followers = {}
    for i = 1, #raw, 2 do L.followers[raw[i]] = tonumber(raw[i + 1]) or 0 end
  end
  return L.followers
end

-- Whether anybody but `owner` follows.
function recent.followed(L, owner)
  if L.followed == nil then
    L.followed = false
    for name, at in pairs(recent.followers(L)) do
      if name ~= owner and at >= L.now - recent.FOLLOW_MS then L.followed = true end
    end
  end
  return L.followed
end

-- Whether nothing was left out since `owner` asked last; it follows from now on.
function recent.follow(L, owner)
  local at = recent.followers(L)[owner]
  if not at or at < L.now - recent.NOTE_MS then L.follows = owner end
  return at ~= nil and at >= L.now - recent.FOLLOW_MS
end

-- How many lines there ever were. From the clock at first (µs: more than are ever written), so that numbers never come again
-- after a loss.
function recent.counts(L)
  if not L.placed then
    local counts = redis.call('HMGET', L.key .. ':meta', 'placed', 'repelled')
    L.placed = {tonumber(counts[1]) or L.now * 1000, tonumber(counts[2]) or L.now * 1000}
    L.placed_fresh = not counts[1]
  end
  return L.placed
end

-- The members of an accepted claim; `given` is what its pods were given, by uid.
function recent.note(L, owner, members, repels, given)
  if not recent.followed(L, owner) then return end
  local lines, repellers = L.placements, L.repellers
  for i = 1, #members do
    local m = members[i]
    if m[4] ~= '' then
      local line = owner .. '\n' .. m[1] .. '\n' .. m[4] .. '\n' .. m[2] .. '/' .. m[3] .. '\n' ..
        (given and given[m[1]] or '')
      lines[#lines + 1] = line
      if repels then repellers[#repellers + 1] = line end
    end
  end
end

-- What others wrote since line number `since`; false if that is not kept any more. A negative one asks for nothing.
function recent.since(L, suffix, since, count, owner)
  if since < 0 or since == count then return {} end
  local behind = count - since
  local found = behind > 0 and redis.call('LRANGE', L.key .. suffix, -behind, -1) or {}
  if #found ~= behind then return false end
  local prefix, others = owner .. '\n', {}
  for i = 1, behind do
    if string.sub(found[i], 1, #prefix) ~= prefix then others[#others + 1] = found[i] end
  end
  return others
end

-- {number of lines, those that the caller does not know or false, the same of repellers}: before this call wrote its own,
-- which are counted but not told.
function recent.news(L, since, owner)
  local counts = recent.counts(L)
  if not recent.follow(L, owner) then
    return {counts[1] + #L.placements, since[1] < 0 and {} or false, counts[2] + #L.repellers, since[2] < 0 and {} or false}
  end
  return {counts[1] + #L.placements, recent.since(L, ':placements', since[1], counts[1], owner),
    counts[2] + #L.repellers, recent.since(L, ':repellers', since[2], counts[2], owner)}
end

writers[#writers + 1] = function(L)
  local lines, repellers = L.placements, L.repellers
  if L.follows then
    redis.call('HSET', L.key .. ':followers', L.follows, string.format('%.0f', L.now))
    for name, at in pairs(L.followers) do
      if name ~= L.follows and at < L.now - recent.FOLLOW_MS then redis.call('HDEL', L.key .. ':followers', name) end
    end
  end
  if #lines == 0 and not L.placed_fresh then return end
  local counts = recent.counts(L)
  if #lines > 0 then
    write(L, 'RPUSH', ':placements', lines)
    redis.call('LTRIM', L.key .. ':placements', -recent.KEPT[':placements'], -1)
  end
  if #repellers > 0 then
    write(L, 'RPUSH', ':repellers', repellers)
    redis.call('LTRIM', L.key .. ':repellers', -recent.KEPT[':repellers'], -1)
  end
  redis.call('HSET', L.key .. ':meta', 'placed', string.format('%.0f', counts[1] + #lines), 'repelled',
    string.format('%.0f', counts[2] + #repellers))
end

-- {owner, {since, since}} -> as `recent.news`. Also of a ledger that is closed.
function recent.read(keys, args)
  local L = enter(keys[1])
  local input = cmsgpack.unpack(args[1])
  local answer = recent.news(L, input[2], input[1])
  flush(L)
  return cmsgpack.pack(answer)
end

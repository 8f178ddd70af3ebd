-- Guards: versions that a claim was planned at, for rules that are no sums.
-- A node's is what the reconciler told with the node (a function of what the node says), kept with its item. Every other
-- one (a term that pods carry or match) is bumped: the clock, or one more, so that a guard that was pruned after an hour
-- without a bump, and is 0 again, never comes back to a version that somebody may still plan with.

local GUARD_MS = 3600000

local function fetch_guards(L, names)
  each_chunk(names, CHUNK, function(first, last)
    local scores = redis.call('ZMSCORE', L.key .. ':guards', unpack(names, first, last))
    for i = 1, #scores do L.guards[names[first + i - 1]] = tonumber(scores[i] or 0) end
  end)
end

-- The version as it was before this call: what the call itself bumps is expected by its later claims.
local function guard_version(L, name)
  if is_node(name) then return item(L, name)[3] end
  local version = L.guards[name]
  if version == nil then
    fetch_guards(L, {name})
    version = L.guards[name]
  end
  return version
end

local function bump(L, name) L.bumped[name] = math.max(L.now, guard_version(L, name) + 1) end

-- Append the guards that are not at the version planned with; a negative one is not compared.
local function check_guards(L, guards, shorts)
  for i = 1, #guards do
    local name, planned = guards[i][1], guards[i][2]
    if planned >= 0 then
      local version = guard_version(L, name)
      if version ~= planned then shorts[#shorts + 1] = {name, '', 'guard', planned, 0, version, ''} end
    end
  end
end

local function bump_all(L, guards)
  for i = 1, #guards do
    if guards[i][3] then bump(L, guards[i][1]) end
  end
end

writers[#writers + 1] = function(L)
  local set = {}
  for name, version in pairs(L.bumped) do
    set[#set + 1] = version
    set[#set + 1] = name
  end
  write(L, 'ZADD', ':guards', set)
end

local function prune_guards(L)
  redis.call('ZREMRANGEBYSCORE', L.key .. ':guards', '-inf', L.now - GUARD_MS)
end

-- {names} -> their versions.
local function guards(keys, args)
  local L = enter(keys[1])
  local versions = {}
  for i, name in ipairs(cmsgpack.unpack(args[1])) do versions[i] = guard_version(L, name) end
  return cmsgpack.pack(versions)
end
